//! dev: pairs of paths
use onnxforge_convert::{Format, Options};
use onnxforge_ir::io;
use onnxforge_proto::progress::Silent;
use onnxforge_rewrite::passes::pipeline;
use onnxforge_rewrite::upgrade::upgrade;
use std::path::Path;
use std::time::Instant;

fn one(from: &Path, to: &Path) -> Result<String, String> {
    let t = Instant::now();
    let mut model = io::load(from, &Default::default()).map_err(|e| format!("LOAD {e}"))?;
    if model.opset(model.main(), "").is_some_and(|o| o < 21) {
        upgrade(&mut model, 21).map_err(|e| format!("UPGRADE {e}"))?;
    }
    let t1 = t.elapsed();
    let passes = Format::TfLite.target().passes().collect();
    let outcome = pipeline::optimize(&mut model, &pipeline::Options { passes, ..Default::default() });
    let t2 = t.elapsed();
    if std::env::var_os("SHOW").is_some() {
        for p in &outcome.passes {
            if p.edits > 0 {
                eprintln!("{} {} {:?}", p.pass.name, p.edits, p.time);
            }
            if std::env::var("SHOW").unwrap() == p.pass.name {
                for s in &p.skipped {
                    eprintln!("   {} {}", model.node_label(s.node), s.reason);
                }
            }
        }
    }
    if let Some(p) = std::env::var_os("DUMP") {
        io::save(&model, Path::new(&p), &Default::default()).unwrap();
    }
    let artifact = Format::TfLite.lower(&model, &Options::default()).map_err(|r| {
        let lines: Vec<String> =
            r.0.iter().map(|r| format!("{}|{}|{}", r.operator, r.reason, r.node)).collect();
        format!("REFUSED {}", lines.join(" ;; "))
    })?;
    let staged = artifact.stage(to, &Silent).map_err(|e| e.to_string())?;
    staged.persist().map_err(|e| e.to_string())?;
    let t3 = t.elapsed();
    let source = Format::TfLite.open(to).map_err(|e| format!("READ {e}"))?;
    let back = source.into_model().map_err(|e| format!("RESOLVE {e}"))?;
    if let Ok(p) = std::env::var("BACK") {
        io::save(&back, Path::new(&p), &Default::default()).unwrap();
    }
    Ok(format!(
        "OK rounds {} load {t1:?} passes {:?} write {:?} {:?}",
        outcome.rounds,
        t2 - t1,
        t3 - t2,
        artifact.summary.operators
    ))
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<String> = if args.len() == 1 {
        std::fs::read_to_string(&args[0]).unwrap().split_whitespace().map(String::from).collect()
    } else {
        args
    };
    for pair in args.chunks(2) {
        let (from, to) = (pair[0].clone(), pair[1].clone());
        let _ = std::fs::remove_file(&to);
        let result = std::panic::catch_unwind(|| one(Path::new(&from), Path::new(&to)));
        match result {
            Ok(Ok(text)) | Ok(Err(text)) => println!("{from}\t{text}"),
            Err(_) => println!("{from}\tPANIC"),
        }
    }
}
