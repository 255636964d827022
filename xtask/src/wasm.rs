//! `cargo xtask wasm`: the library as a WebAssembly module, and whether it makes of a model what the command line does.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::step::{Profile, build_cli, cargo, output, root, step, target_folder};

const TARGET: &str = "wasm32-unknown-unknown";
const MODULE: &str = "onnxforge_web.wasm";
const MODEL: &str = "examples/tiny_bert.onnx";

/// Debian's own Rust, which builds the standard library for the target from source.
const DEBIAN: &str = "/usr/bin";
/// Where Debian's `rust-web-src` has that source.
const DEBIAN_SOURCE: &str = "/usr/lib/rustlib/src/rust/library";
/// Linkers for the target; the packages of Debian have their version in the name.
const LINKERS: &[&str] = &["wasm-ld", "wasm-ld-20", "wasm-ld-19", "wasm-ld-18", "rust-lld"];

/// What builds for the target.
enum Toolchain {
    /// The one that runs this: it has the standard library for the target.
    Own,
    /// Debian's, with this linker.
    Debian(&'static str),
}

/// Builds the module and compares. `if_possible`: says what is missing instead of failing.
pub fn run(if_possible: bool) -> Result<()> {
    let (toolchain, node) = match (toolchain(), runs("node")) {
        (Some(toolchain), true) => (toolchain, "node"),
        (found, _) => {
            let missing = match found {
                None => {
                    "Rust for wasm32-unknown-unknown: `rustup target add wasm32-unknown-unknown`, or on Debian \
                         `apt-get install rustc-web cargo-web rust-web-src lld-19`"
                }
                Some(_) => "Node, to run the module: `apt-get install nodejs`, or https://nodejs.org",
            };
            ensure!(if_possible, "missing: {missing}");
            println!("==> the WebAssembly module is not built; missing: {missing}");
            return Ok(());
        }
    };
    let module = build(&toolchain)?;
    let size = std::fs::metadata(&module)?.len();
    println!("==> {} has {:.1} MB", module.display(), size as f64 / 1e6);
    let cli = build_cli(Profile::Release)?;
    let folder = tempfile::tempdir()?;
    let model = root().join(MODEL);
    for (title, verify, flags) in [
        ("without verification", "0", &["--verify", "off"][..]),
        ("with verification", "1", &["--engine", "native"]),
    ] {
        let [ours, theirs] = ["module.onnx", "native.onnx"].map(|name| folder.path().join(name));
        let mut here = Command::new(node);
        here.arg(root().join("xtask/wasm/run.mjs")).arg(&module).arg(&model).arg(&ours).arg(verify);
        step(&format!("optimize by the module, {title}"), &mut here)?;
        let mut native = Command::new(&cli);
        native.args(["-q", "optimize"]).arg(&model).arg("-o").arg(&theirs).args(flags);
        step(&format!("optimize by the command line, {title}"), &mut native)?;
        ensure!(
            std::fs::read(&ours)? == std::fs::read(&theirs)?,
            "the module makes something else of {MODEL} than the command line does, {title}"
        );
    }
    println!("==> the module and the command line make the same bytes of {MODEL}");
    Ok(())
}

/// Whether a program is there.
fn runs(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// What builds for the target on this machine.
fn toolchain() -> Option<Toolchain> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let own = output(Command::new(rustc).args(["--print", "target-libdir", "--target", TARGET]));
    if own.is_ok_and(|folder| Path::new(folder.trim()).is_dir()) {
        return Some(Toolchain::Own);
    }
    let is_there = |name: &str| Path::new(DEBIAN).join(name).is_file();
    let linker = LINKERS.iter().find(|linker| is_there(linker))?;
    let complete = is_there("rustc") && is_there("cargo") && Path::new(DEBIAN_SOURCE).is_dir();
    complete.then_some(Toolchain::Debian(linker))
}

/// Builds the module; its path.
fn build(toolchain: &Toolchain) -> Result<PathBuf> {
    let folder = target_folder()?.join("wasm");
    let arguments = ["build", "--release", "--package", "onnxforge-web", "--target", TARGET];
    let mut build = match toolchain {
        Toolchain::Own => cargo(&arguments),
        Toolchain::Debian(linker) => {
            let paths = std::env::var_os("PATH").unwrap_or_default();
            let paths = std::iter::once(PathBuf::from(DEBIAN)).chain(std::env::split_paths(&paths));
            let mut build = Command::new(Path::new(DEBIAN).join("cargo"));
            build.args(arguments).arg("-Zbuild-std=std,panic_abort").current_dir(root());
            build.env("PATH", std::env::join_paths(paths).context("PATH")?);
            build.env("RUSTC_BOOTSTRAP", "1").env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker);
            for of_rustup in ["CARGO", "RUSTC", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN"] {
                build.env_remove(of_rustup);
            }
            build
        }
    };
    build.env("CARGO_TARGET_DIR", &folder);
    step("build the WebAssembly module", &mut build)?;
    Ok(folder.join(TARGET).join("release").join(MODULE))
}
