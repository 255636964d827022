//! scratch
fn main() {
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (a, b) = line.split_once('\t').unwrap();
        let t = std::time::Instant::now();
        match onnxforge::io::load(a.as_ref(), &Default::default()) {
            Err(e) => println!("ERR\t{e}"),
            Ok(m) => {
                let dt = t.elapsed();
                if let Err(e) = m.validate() {
                    println!("INV\t{e}");
                    continue;
                }
                let mode = match std::env::var("MODE").as_deref() {
                    Ok("split") => onnxforge::io::External::Split,
                    Ok("inline") => onnxforge::io::External::Inline,
                    Ok("auto") => onnxforge::io::External::Auto,
                    _ => onnxforge::io::External::Keep,
                };
                let t = std::time::Instant::now();
                match onnxforge::io::save(&m, b.as_ref(), &onnxforge::io::SaveOptions { external: mode }) {
                    Err(e) => println!("SAV\t{e}"),
                    Ok(_) => println!("OK\t{dt:?}\t{:?}", t.elapsed()),
                }
            }
        }
    }
}
