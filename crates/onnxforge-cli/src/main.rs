//! The program `onnxforge`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let program = std::env::current_exe().map(Into::into).into_iter().collect();
    ExitCode::from(onnxforge_cli::main(std::env::args_os(), program))
}
