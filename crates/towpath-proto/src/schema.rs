//! JSON schemas of settings that are written as text. Descriptions and examples of settings are generated from them.

pub use schemars;

/// Implements [`schemars::JsonSchema`] for a type that is written as text. The extension `accepted` says which text is
/// accepted, and `example` is such a text.
#[macro_export]
macro_rules! text_schema {
    ($name:ident, $accepted:expr, $example:expr) => {
        impl $crate::schema::schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut $crate::schema::schemars::SchemaGenerator) -> $crate::schema::schemars::Schema {
                $crate::schema::schemars::json_schema!({
                    "type": "string",
                    "accepted": $accepted,
                    "examples": [$example],
                })
            }
        }
    };
}
