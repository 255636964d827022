//! The kinds of attribute values.

macro_rules! kinds {
    ($( $kind:ident = $code:literal, $name:literal $(, list of $element:ident)?; )*) => {
        /// What an attribute holds, with the numbers that ONNX gives the kinds.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Kind {
            $( $kind = $code, )*
        }

        impl Kind {
            const ALL: &'static [Self] = &[$( Self::$kind, )*];

            /// The word for it.
            pub(super) fn name(self) -> &'static str {
                match self {
                    $( Self::$kind => $name, )*
                }
            }

            /// What a list holds; anything else holds itself.
            pub(super) fn element(self) -> Self {
                match self {
                    $( $( Self::$kind => Self::$element, )? )*
                    single => single,
                }
            }
        }
    };
}

kinds! {
    Float = 1, "float";
    Int = 2, "int";
    String = 3, "string";
    Tensor = 4, "tensor";
    Graph = 5, "graph";
    Floats = 6, "floats", list of Float;
    Ints = 7, "ints", list of Int;
    Strings = 8, "strings", list of String;
    Tensors = 9, "tensors", list of Tensor;
    Graphs = 10, "graphs", list of Graph;
    SparseTensor = 11, "sparse_tensor";
    SparseTensors = 12, "sparse_tensors", list of SparseTensor;
    TypeProto = 13, "type_proto";
    TypeProtos = 14, "type_protos", list of TypeProto;
}

impl Kind {
    /// The number that ONNX gives it.
    pub(super) fn code(self) -> i32 {
        self as i32
    }

    pub(super) fn from_code(code: i32) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.code() == code)
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    pub(super) fn is_list(self) -> bool {
        self.element() != self
    }

    /// The list of such values.
    pub(super) fn list(self) -> Option<Self> {
        Self::ALL.iter().copied().find(|list| list.is_list() && list.element() == self)
    }
}
