//! Messages as structs: a table of field numbers, names and types becomes what reads and writes them.

/// Defines messages by a table of their fields: number, name, type.
///
/// `Option` is an optional field and keeps whether it was present; `Vec` is a repeated one. `not` names the fields that reading this one clears, as in a oneof.
#[macro_export]
macro_rules! messages {
    ($(
        $(#[$doc:meta])*
        $message:ident { $( $number:literal $field:ident: $type:ty $(, not $other:ident)*; )* }
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq)]
        #[allow(missing_docs)]
        pub struct $message {
            $( pub $field: $type, )*
            /// Fields that are not in this table.
            pub unknown: $crate::wire::Unknown,
        }

        impl $crate::wire::Message for $message {
            fn merge_field(&mut self, number: u32, wire: $crate::wire::Wire, reader: &mut $crate::wire::Reader<'_>) -> Result<bool, $crate::wire::WireError> {
                match number {
                    $( $number => {
                        let read = $crate::wire::in_field(&mut self.$field, stringify!($field), wire, reader)?;
                        $( if read { self.$other = None; } )*
                        Ok(read)
                    } )*
                    _ => Ok(false),
                }
            }

            fn unknown_mut(&mut self) -> &mut $crate::wire::Unknown {
                &mut self.unknown
            }

            fn encode(&self, out: &mut $crate::wire::Encoder) {
                out.unknown(&self.unknown);
                $crate::messages!(@reversed self, out; $( ($number $field) )*);
            }
        }

        impl $crate::wire::Delimited for $message {
            fn read(reader: &mut $crate::wire::Reader<'_>) -> Result<Self, $crate::wire::WireError> {
                let mut message = Self::default();
                reader.nested(&mut message)?;
                Ok(message)
            }
            fn write(&self, out: &mut $crate::wire::Encoder) {
                $crate::wire::Message::encode(self, out);
            }
        }
    )*};
    (@reversed $self:ident, $out:ident;) => {};
    (@reversed $self:ident, $out:ident; ($number:literal $field:ident) $($rest:tt)*) => {
        $crate::messages!(@reversed $self, $out; $($rest)*);
        $crate::wire::Field::encode(&$self.$field, $number, $out);
    };
}
