//! How a section of settings is declared: once, with the form, the built-in value, the documentation and the moment it takes
//! effect of each key. The declaration makes the struct that holds the values, so that a key that is misspelt or missing where
//! it is used does not compile, and one that nothing uses is a warning of the compiler.

/// Declares the settings of one section. `*` in its path stands for a name the operator chose. The text after `=` is the
/// built-in value as it would be typed; for an `Optional` form it is an example.
///
/// ```text
/// section! {
///     /// The node as a whole.
///     Node in "node" {
///         /// Parked requests of all pools at most.
///         max_parked: Count = "500", RunTime;
///     }
/// }
/// ```
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        $name:ident in $path:literal {
            $( $(#[doc = $doc:literal])+ $field:ident: $form:ty = $text:literal, $effect:ident; )+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug)]
        pub(in crate::config) struct $name<'a> {
            $(
                $(#[doc = $doc])+
                pub(in crate::config) $field: $crate::config::schema::reader::Entry<
                    'a,
                    <$form as $crate::config::schema::form::Form>::Value,
                >,
            )+
        }

        impl<'a> $name<'a> {
            /// The section's path.
            pub(in crate::config) const PATH: &'static str = $path;

            /// Its rows of the table of all settings.
            pub(in crate::config) const ROWS: &'static [$crate::config::schema::Setting] = &[
                $(
                    $crate::config::schema::Setting {
                        key: concat!($path, ".", stringify!($field)),
                        kind: <$form as $crate::config::schema::form::Form>::KIND,
                        default: if <$form as $crate::config::schema::form::Form>::OPTIONAL { None } else { Some($text) },
                        example: $text,
                        effect: $crate::config::schema::Effect::$effect,
                        doc: concat!($($doc),+),
                    },
                )+
            ];

            /// Reads the section; `names` stand for the `*` of its path.
            pub(in crate::config) fn read(
                reader: &$crate::config::schema::reader::Reader<'a>,
                names: &[&str],
            ) -> Self {
                let section = $crate::config::schema::reader::section_path(Self::PATH, names);
                Self { $( $field: reader.entry::<$form>(&section, stringify!($field), $text), )+ }
            }
        }
    };
}

pub(super) use section;
