//! Running models: what inputs must look like, synthetic inputs, and places in errors.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use onnxforge_ir::io::load_bytes;
use onnxforge_ir::text;
use onnxforge_ir::{DType, Model};
use onnxforge_ops::eval::sample::{self, SampleError, sample};
use onnxforge_ops::eval::{Options, Session};
use onnxforge_ops::{Array, Value};
use onnxforge_proto::blob::Blob;
use onnxforge_proto::schema::{ModelProto, SparseTensorProto, TensorProto};
use onnxforge_proto::wire;
use onnxforge_testing::memory::peak;

fn message(interface: &str, nodes: &str) -> ModelProto {
    let text = format!("<ir_version: 10, opset_import: [\"\" : 21]>\ng {interface} {{\n{nodes}\n}}");
    text::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn loaded(message: &ModelProto) -> Model {
    let mut bytes = Vec::new();
    wire::encode(message).write_to(&mut bytes).unwrap();
    load_bytes(bytes, None, &Default::default()).unwrap()
}

fn graph(interface: &str, nodes: &str) -> Model {
    loaded(&message(interface, nodes))
}

fn zeros(shape: &[usize]) -> Value {
    Array::new(shape, vec![0f32; shape.iter().product()]).unwrap().into()
}

fn inputs(given: &[(&str, &[usize])]) -> HashMap<String, Value> {
    given.iter().map(|(name, shape)| ((*name).to_owned(), zeros(shape))).collect()
}

fn made_up(model: &Model, options: &sample::Options) -> Result<HashMap<String, Value>, SampleError> {
    sample(model, options, &HashMap::new())
}

#[test]
fn inputs_are_compared_with_their_declarations() {
    let model = graph(
        "(float[2, 3] a, float[n, ?] b, float[n] c, float[] d) => (float[] y)",
        "y = Concat <axis = 0> (c, c)",
    );
    let run = |given: &[(&str, &[usize])]| {
        Session::new(&model, Options::default())
            .run(&inputs(given))
            .map(drop)
            .map_err(|error| error.to_string())
    };
    let good: [(&str, &[usize]); 4] = [("a", &[2, 3]), ("b", &[4, 9]), ("c", &[4]), ("d", &[7, 7])];
    assert_eq!(run(&good), Ok(()));
    for (name, shape, message) in [
        ("a", &[7][..], "the input a is [7], declared [2,3]"),
        ("a", &[2, 4], "the input a is [2,4], declared [2,3]"),
        ("b", &[4], "the input b is [4], declared [n,?]"),
        ("c", &[5, 1], "the input c is [5,1], declared [n]"),
    ] {
        let given = good.map(|(other, good)| if other == name { (name, shape) } else { (other, good) });
        assert_eq!(run(&given), Err(message.to_owned()));
    }
}

#[test]
fn inputs_count_towards_the_memory_budget() {
    let model = graph("(float[n] a) => (int64[1] y)", "y = Shape (a)");
    let given = inputs(&[("a", &[1000])]);
    let run = |memory, wide| {
        Session::new(&model, Options { memory, wide, ..Options::default() }).run(&given).map(drop)
    };
    assert!(run(5000, false).is_ok());
    let error = run(3000, false).unwrap_err().to_string();
    assert!(error.contains("the input a: 4000 bytes are needed"), "{error}");
    let error = run(5000, true).unwrap_err().to_string();
    assert!(error.contains("8000 bytes are needed"), "{error}");
}

#[test]
fn errors_about_constants_keep_the_name() {
    let mut message = message("(float[2] x) => (float[] y)", "y = Add (x, huge)");
    let values = TensorProto {
        name: Some("huge".into()),
        dims: vec![1],
        data_type: Some(DType::F32.code()),
        raw_data: Some(Blob::from(vec![0u8; 4]).into()),
        ..TensorProto::default()
    };
    let indices = TensorProto {
        dims: vec![1],
        data_type: Some(DType::I64.code()),
        raw_data: Some(Blob::from(vec![0u8; 8]).into()),
        ..TensorProto::default()
    };
    let sparse = SparseTensorProto {
        values: Some(Box::new(values)),
        indices: Some(Box::new(indices)),
        dims: vec![1 << 40],
        ..SparseTensorProto::default()
    };
    message.graph.as_mut().unwrap().sparse_initializer.push(sparse);
    let model = loaded(&message);
    let error =
        Session::new(&model, Options::default()).run(&inputs(&[("x", &[2])])).unwrap_err().to_string();
    assert!(error.starts_with("the constant huge: "), "{error}");
}

#[test]
fn making_up_keeps_to_memory_and_time() {
    let model = graph("(float[12000, 10000] a) => (int64[2] y)", "y = Shape (a)");
    let (answer, used) =
        peak(|| made_up(&model, &sample::Options { memory: 10_000_000, ..Default::default() }));
    let error = answer.unwrap_err();
    assert!(matches!(error, SampleError::Budget { .. }), "{error}");
    assert!(error.to_string().contains("480000000 bytes are needed"), "{error}");
    assert!(used < 1 << 20, "{used} bytes");
    let start = Instant::now();
    let deadline = Some(start + Duration::from_millis(20));
    let error = made_up(&model, &sample::Options { deadline, ..Default::default() }).unwrap_err();
    assert!(error.to_string().contains("time budget"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(2));
    // In the type that is wanted, without a wider copy.
    let small = graph("(float16[1000, 1000] a) => (int64[2] y)", "y = Shape (a)");
    let (answer, used) = peak(|| made_up(&small, &Default::default()));
    assert!(answer.is_ok() && used < 2_500_000, "{used} bytes");
    let endless = graph("(float[4611686018427387904, 16] a) => (int64[2] y)", "y = Shape (a)");
    let error = made_up(&endless, &Default::default()).unwrap_err().to_string();
    assert_eq!(error, "the input a cannot be generated: its shape [4611686018427387904, 16] is too large");
}

#[test]
fn shapes_agree_among_inputs_that_are_made_up() {
    let mut message = message(
        "(float[batch, seq] a, float[batch, seq] b, float[batch, seq_past] c, float[2] d) => (float[] y)",
        "y = Add (a, b)",
    );
    let ty = message.graph.as_mut().unwrap().input[2].r#type.as_mut().unwrap();
    ty.tensor_type.as_mut().unwrap().shape.as_mut().unwrap().dim[1].dim_param = Some("seq + past".into());
    let model = loaded(&message);
    let shapes = |made: &HashMap<String, Value>| {
        ["a", "b", "c", "d"].map(|name| made.get(name).map(|value| value.array().unwrap().shape().to_vec()))
    };
    let with = |name: &str, shape: &[usize]| sample::Options {
        shapes: HashMap::from([(name.to_owned(), shape.to_vec())]),
        ..Default::default()
    };
    let made = made_up(&model, &with("a", &[2, 4])).unwrap();
    assert_eq!(shapes(&made), [Some(vec![2, 4]), Some(vec![2, 4]), Some(vec![2, 5]), Some(vec![2])]);
    // The same for what is given.
    let given = inputs(&[("b", &[3, 2])]);
    let made = sample(&model, &Default::default(), &given).unwrap();
    assert_eq!(shapes(&made), [Some(vec![3, 2]), None, Some(vec![3, 3]), Some(vec![2])]);
    for (name, shape, message) in [
        ("a", &[2][..], "the input a is [2], declared [batch,seq]"),
        ("d", &[3], "the input d is [3], declared [2]"),
    ] {
        assert_eq!(made_up(&model, &with(name, shape)).unwrap_err().to_string(), message);
    }
    let set = sample::Options { dims: HashMap::from([("seq".to_owned(), 5)]), ..with("a", &[2, 4]) };
    let error = made_up(&model, &set).unwrap_err().to_string();
    assert_eq!(error, "seq is 4 in the shape of a, and set to 5");
}

#[test]
fn every_type_is_made_up() {
    for &dtype in DType::ALL {
        let model = graph(&format!("({}[5] a) => (int64[1] y)", dtype.name()), "y = Shape (a)");
        let made = made_up(&model, &Default::default()).unwrap();
        let array = made["a"].array().unwrap();
        assert_eq!((array.dtype(), array.shape()), (dtype, &[5][..]));
    }
}

#[test]
fn weights_that_are_turned_are_not_copied() {
    const SIDE: usize = 512;
    let matrix: Vec<f32> = (0..SIDE * SIDE).map(|at| (at % 7) as f32 - 3.0).collect();
    let of = |nodes: &str| {
        let mut message = message(&format!("(float[N,{SIDE}] x) => (float[N,{SIDE}] y)"), nodes);
        message.graph.as_mut().unwrap().initializer.push(TensorProto {
            dims: vec![SIDE as i64; 2],
            data_type: Some(DType::F32.code()),
            name: Some("w".into()),
            raw_data: Some(Blob::from(bytemuck::cast_slice::<f32, u8>(&matrix).to_vec()).into()),
            ..TensorProto::default()
        });
        loaded(&message)
    };
    let model = of("t = Transpose(w)\ny = MatMul(x, t)");
    let x = Array::new([3, SIDE], (0..3 * SIDE).map(|at| (at % 5) as f32).collect::<Vec<_>>()).unwrap();
    let given = HashMap::from([("x".to_owned(), Value::from(x))]);
    let numbers = |value: &Value| match value {
        Value::Tensor(array) => array.to_f64s().unwrap(),
        other => panic!("{other:?}"),
    };
    let first = |outputs: &[(_, Value)]| numbers(&outputs[0].1);
    let session = Session::new(&model, Options::default());
    let (outputs, held) = peak(|| [session.run(&given).unwrap(), session.run(&given).unwrap()]);
    // The bytes of the message may not lie where floats have to; of the transposed matrix there is none.
    assert!(held < SIDE * SIDE * 6, "{held} bytes for {} of weights", SIDE * SIDE * 4);
    let plain = || Options { keep_constants: false, ..Options::default() };
    assert_eq!(first(&outputs[0]), first(&Session::new(&model, plain()).run(&given).unwrap()));
    assert_eq!(first(&outputs[0]), first(&outputs[1]));
    // What is asked for is computed all the same, and what something else reads.
    let turned = model.values().find(|(_, value)| &**value.name() == "t").unwrap().0;
    let wanted = session.run_values(&given, &[turned]).unwrap();
    assert_eq!(numbers(&wanted[0])[1], f64::from(matrix[SIDE]));
    let other = of("t = Transpose(w)\nz = MatMul(x, t)\nu = MatMul(t, t)\nv = MatMul(z, u)\ny = Add(v, x)");
    let kept = Session::new(&other, Options::default()).run(&given).unwrap();
    assert_eq!(first(&kept), first(&Session::new(&other, plain()).run(&given).unwrap()));
}
