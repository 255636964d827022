//! The types that most sums and products are defined for.

/// Runs `$body` with `$T` as the Rust type of an array of 32- or 64-bit numbers; other types are unsupported.
macro_rules! each_wide {
    ($array:expr, $T:ident => $body:expr) => {{
        use $crate::ops::array::Buffer;
        match $array.buffer() {
            Buffer::F32(_) => {
                type $T = f32;
                $body
            }
            Buffer::F64(_) => {
                type $T = f64;
                $body
            }
            Buffer::I32(_) => {
                type $T = i32;
                $body
            }
            Buffer::I64(_) => {
                type $T = i64;
                $body
            }
            Buffer::U32(_) => {
                type $T = u32;
                $body
            }
            Buffer::U64(_) => {
                type $T = u64;
                $body
            }
            _ => Err($crate::ops::error::unsupported_type($array)),
        }
    }};
}

pub(crate) use each_wide;
