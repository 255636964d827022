//! The numbers of the format: element types, operators and the kinds of their options.

use onnxforge_ir::DType;

/// What stands at the start of every file, behind the offset of the root.
pub const IDENTIFIER: &[u8; 4] = b"TFL3";

/// Element types by their number.
const TYPES: [(DType, u8); 14] = [
    (DType::F32, 0),
    (DType::F16, 1),
    (DType::I32, 2),
    (DType::U8, 3),
    (DType::I64, 4),
    (DType::Bool, 6),
    (DType::I16, 7),
    (DType::C64, 8),
    (DType::I8, 9),
    (DType::F64, 10),
    (DType::C128, 11),
    (DType::U64, 12),
    (DType::U32, 15),
    (DType::U16, 16),
];

/// The number of an element type.
pub fn type_code(dtype: DType) -> Option<u8> {
    TYPES.iter().find(|(known, _)| *known == dtype).map(|(_, code)| *code)
}

/// The element type of a number.
pub fn type_of(code: u8) -> Option<DType> {
    TYPES.iter().find(|(_, known)| *known == code).map(|(dtype, _)| *dtype)
}

/// An operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Builtin {
    /// Its name.
    pub name: &'static str,
    /// Its number.
    pub code: i32,
    /// The kind of its options; 0 where it has none.
    pub options: u8,
}

macro_rules! builtins {
    ($($name:ident = $code:literal, $options:literal;)+) => {
        $(
            #[allow(missing_docs)]
            pub const $name: Builtin = Builtin { name: stringify!($name), code: $code, options: $options };
        )+
        /// The operators that are written or read.
        pub const BUILTINS: &[Builtin] = &[$($name),+];
    };
}

builtins! {
    ADD = 0, 11;
    AVERAGE_POOL_2D = 1, 5;
    CONCATENATION = 2, 10;
    CONV_2D = 3, 1;
    DEPTHWISE_CONV_2D = 4, 2;
    DEPTH_TO_SPACE = 5, 94;
    DEQUANTIZE = 6, 38;
    FLOOR = 8, 0;
    FULLY_CONNECTED = 9, 8;
    LOGISTIC = 14, 0;
    MAX_POOL_2D = 17, 5;
    MUL = 18, 21;
    RELU = 19, 0;
    RELU_N1_TO_1 = 20, 0;
    RELU6 = 21, 0;
    RESHAPE = 22, 17;
    RESIZE_BILINEAR = 23, 15;
    SOFTMAX = 25, 9;
    SPACE_TO_DEPTH = 26, 19;
    TANH = 28, 0;
    PAD = 34, 22;
    GATHER = 36, 23;
    TRANSPOSE = 39, 26;
    MEAN = 40, 27;
    SUB = 41, 28;
    DIV = 42, 29;
    SQUEEZE = 43, 30;
    STRIDED_SLICE = 45, 32;
    EXP = 47, 33;
    TOPK_V2 = 48, 34;
    SPLIT = 49, 35;
    LOG_SOFTMAX = 50, 36;
    CAST = 53, 37;
    PRELU = 54, 0;
    MAXIMUM = 55, 39;
    ARG_MAX = 56, 40;
    MINIMUM = 57, 39;
    LESS = 58, 41;
    NEG = 59, 42;
    PADV2 = 60, 43;
    GREATER = 61, 44;
    GREATER_EQUAL = 62, 45;
    LESS_EQUAL = 63, 46;
    SLICE = 65, 48;
    SIN = 66, 0;
    TRANSPOSE_CONV = 67, 49;
    TILE = 69, 51;
    EXPAND_DIMS = 70, 52;
    EQUAL = 71, 53;
    NOT_EQUAL = 72, 54;
    LOG = 73, 0;
    SUM = 74, 27;
    SQRT = 75, 0;
    RSQRT = 76, 0;
    SHAPE = 77, 55;
    POW = 78, 56;
    ARG_MIN = 79, 57;
    REDUCE_PROD = 81, 27;
    REDUCE_MAX = 82, 27;
    PACK = 83, 59;
    LOGICAL_OR = 84, 60;
    LOGICAL_AND = 86, 62;
    LOGICAL_NOT = 87, 63;
    REDUCE_MIN = 89, 27;
    FLOOR_DIV = 90, 65;
    SQUARE = 92, 66;
    FILL = 94, 68;
    FLOOR_MOD = 95, 72;
    RANGE = 96, 73;
    RESIZE_NEAREST_NEIGHBOR = 97, 74;
    LEAKY_RELU = 98, 75;
    SQUARED_DIFFERENCE = 99, 76;
    MIRROR_PAD = 100, 77;
    ABS = 101, 78;
    SPLIT_V = 102, 79;
    CEIL = 104, 0;
    GATHER_ND = 107, 83;
    COS = 108, 84;
    ELU = 111, 0;
    QUANTIZE = 114, 89;
    ROUND = 116, 0;
    HARD_SWISH = 117, 91;
    SELECT_V2 = 123, 98;
    BATCH_MATMUL = 126, 101;
    CUMSUM = 128, 102;
    BROADCAST_TO = 130, 104;
    GELU = 150, 116;
    RELU_0_TO_1 = 152, 0;
    SIGN = 158, 123;
}

/// The operator of a number.
pub fn builtin(code: i32) -> Option<&'static Builtin> {
    BUILTINS.iter().find(|builtin| builtin.code == code)
}
