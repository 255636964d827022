//! Code for every type that an array may hold its elements in.

/// Runs `$body` with `$T` as the Rust type of the array's elements, one of those listed; `$otherwise` for the rest.
macro_rules! each_of {
    ($array:expr, $T:ident => $body:expr, [$($variant:ident $type:ty),* $(,)?] $(, _ => $otherwise:expr)?) => {
        match $array.buffer() {
            $( $crate::array::Buffer::$variant(_) => {
                type $T = $type;
                $body
            } )*
            $( _ => $otherwise, )?
        }
    };
}

/// Runs `$body` with `$T` as the Rust type that holds the array's elements. For work that only moves elements.
macro_rules! each_elem {
    ($array:expr, $T:ident => $body:expr) => {
        $crate::array::each::each_of!($array, $T => $body, [
            F32 f32, F64 f64, F16 half::f16, BF16 half::bf16,
            I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64,
            Bool bool, C64 num_complex::Complex<f32>, C128 num_complex::Complex<f64>,
            Code $crate::array::Code, Str onnxforge_proto::blob::Blob,
        ])
    };
}

/// Runs `$body` with `$T` as the Rust type of a real number array; other types are unsupported.
/// 16-bit floats are real numbers too; most operators never see them
/// (see [`OpDef::widening`](crate::OpDef::widening)).
macro_rules! each_number {
    ($array:expr, $T:ident => $body:expr) => {
        $crate::array::each::each_of!($array, $T => $body, [
            F32 f32, F64 f64, F16 half::f16, BF16 half::bf16,
            I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64
        ], _ => Err($crate::array::unsupported_type($array)))
    };
}

/// Runs `$body` with `$T` as `f32` or `f64`; other types are unsupported.
macro_rules! each_float {
    ($array:expr, $T:ident => $body:expr) => {
        $crate::array::each::each_of!($array, $T => $body, [
            F32 f32, F64 f64
        ], _ => Err($crate::array::unsupported_type($array)))
    };
}

/// Runs `$body` with `$T` as the Rust type of an integer array of 8 to 64 bits; other types are unsupported.
macro_rules! each_integer {
    ($array:expr, $T:ident => $body:expr) => {
        $crate::array::each::each_of!($array, $T => $body, [
            I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64
        ], _ => Err($crate::array::unsupported_type($array)))
    };
}

/// Runs `$body` with `$T` as the Rust type of an array of 32- or 64-bit numbers, for which most sums and products are
/// defined; other types are unsupported.
macro_rules! each_wide {
    ($array:expr, $T:ident => $body:expr) => {
        $crate::array::each::each_of!($array, $T => $body, [
            F32 f32, F64 f64, I32 i32, I64 i64, U32 u32, U64 u64
        ], _ => Err($crate::array::unsupported_type($array)))
    };
}

pub(crate) use {each_elem, each_float, each_integer, each_number, each_of, each_wide};
