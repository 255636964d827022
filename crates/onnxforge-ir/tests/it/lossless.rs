//! Through the IR and back nothing changes, wherever external data does not become internal. That the messages
//! compared here are what the bytes say, the tests of `onnxforge-proto` hold against `prost`.

use onnxforge_ir::io::{load, load_bytes, to_bytes};
use onnxforge_proto::blob::Blob;
use onnxforge_proto::schema::ModelProto;
use onnxforge_proto::wire;
use onnxforge_testing::models;

use crate::common::encoded;

#[test]
fn real_models_survive_loading_and_saving() {
    for path in models() {
        let bytes = std::fs::read(&path).unwrap();
        let model = load(&path, &Default::default()).unwrap();
        model.validate().unwrap();
        let again = to_bytes(&model).unwrap();
        let message = |bytes: &[u8]| wire::decode::<ModelProto>(&Blob::from(bytes)).unwrap();
        let before = message(&bytes);
        if !format!("{before:?}").contains("external_data: [S") {
            assert!(encoded(&message(&again)) == encoded(&before), "{}", path.display());
        }
        let reloaded = load_bytes(again.clone(), None, &Default::default()).unwrap();
        assert!(to_bytes(&reloaded).unwrap() == again, "{}", path.display());
    }
}
