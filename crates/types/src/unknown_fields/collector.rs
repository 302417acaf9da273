//! A deserializer around another one that sees which fields nobody asks for. A struct that does not know a
//! field asks for it to be ignored; here its value is kept instead. Everything else goes straight through,
//! so a record without unknown fields costs little more to read than without this.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, DeserializeSeed, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, VariantAccess};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::Level;

/// What was found in one value.
#[derive(Debug)]
pub(super) enum Found {
    /// All of it is known, or it is not an object.
    Nothing,
    /// The field itself is not known: this is its value.
    Unknown(Value),
    /// The value is an object, of which this is not known.
    Inside(Level),
}

impl Found {
    pub(super) fn into_level(self) -> Option<Level> {
        match self {
            Self::Inside(level) => Some(level),
            Self::Nothing | Self::Unknown(_) => None,
        }
    }
}

impl Level {
    fn note(&mut self, name: &str, found: Found) {
        match found {
            Found::Nothing => {}
            Found::Unknown(value) => drop(self.fields.insert(name.into(), value)),
            Found::Inside(level) if level.is_empty() => {}
            Found::Inside(level) => drop(self.below.insert(name.into(), level)),
        }
    }
}

/// Reads one value of the deserializer that it is made from, and notes what is not known of it.
#[derive(Debug)]
pub struct Collector<'a, T> {
    inner: T,
    found: &'a mut Found,
}

impl<'a, T> Collector<'a, T> {
    pub(super) fn new(inner: T, found: &'a mut Found) -> Self {
        Self { inner, found }
    }
}

macro_rules! pass_through {
    ($($method:ident($($argument:ident: $type:ty),*))+) => {$(
        fn $method<V: de::Visitor<'de>>(self, $($argument: $type,)* visitor: V) -> Result<V::Value, D::Error> {
            self.inner.$method($($argument,)* visitor)
        }
    )+};
}

macro_rules! look_inside {
    ($($method:ident($($argument:ident: $type:ty),*))+) => {$(
        fn $method<V: de::Visitor<'de>>(self, $($argument: $type,)* visitor: V) -> Result<V::Value, D::Error> {
            self.inner.$method($($argument,)* Collector::new(visitor, self.found))
        }
    )+};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Collector<'_, D> {
    type Error = D::Error;

    look_inside! {
        deserialize_option()
        deserialize_newtype_struct(name: &'static str)
        deserialize_struct(name: &'static str, fields: &'static [&'static str])
        deserialize_enum(name: &'static str, variants: &'static [&'static str])
    }

    /// Only a field that is not known is asked for like this.
    fn deserialize_ignored_any<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        *self.found = Found::Unknown(Value::deserialize(self.inner)?);
        visitor.visit_unit()
    }

    // A map has whichever keys it has, and elements of a list see to themselves.
    pass_through! {
        deserialize_any() deserialize_bool() deserialize_char() deserialize_str() deserialize_string()
        deserialize_i8() deserialize_i16() deserialize_i32() deserialize_i64() deserialize_i128()
        deserialize_u8() deserialize_u16() deserialize_u32() deserialize_u64() deserialize_u128()
        deserialize_f32() deserialize_f64() deserialize_bytes() deserialize_byte_buf() deserialize_unit()
        deserialize_unit_struct(name: &'static str) deserialize_seq() deserialize_tuple(length: usize)
        deserialize_tuple_struct(name: &'static str, length: usize) deserialize_map() deserialize_identifier()
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

impl<'de, V: de::Visitor<'de>> de::Visitor<'de> for Collector<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    fn visit_none<E: de::Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_unit<E: de::Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, value: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(Collector::new(value, self.found))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, value: D) -> Result<V::Value, D::Error> {
        self.inner.visit_newtype_struct(Collector::new(value, self.found))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<V::Value, A::Error> {
        self.inner.visit_seq(elements)
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<V::Value, A::Error> {
        let mut level = Level::default();
        let value = self.inner.visit_map(Fields { inner: fields, name: "".into(), level: &mut level })?;
        *self.found = Found::Inside(level);
        Ok(value)
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        self.inner.visit_enum(Collector::new(variant, self.found))
    }
}

/// The fields of one object.
struct Fields<'a, 'de, A> {
    inner: A,
    /// Of the field whose value comes next.
    name: Cow<'de, str>,
    level: &'a mut Level,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Fields<'_, 'de, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        let Some(Name(name)) = self.inner.next_key()? else { return Ok(None) };
        let known = seed.deserialize(name.as_ref().into_deserializer())?;
        self.name = name;
        Ok(Some(known))
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, A::Error> {
        let mut found = Found::Nothing;
        let value = self.inner.next_value_seed(Collector::new(seed, &mut found))?;
        self.level.note(&self.name, found);
        Ok(value)
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, T: DeserializeSeed<'de>> DeserializeSeed<'de> for Collector<'_, T> {
    type Value = T::Value;

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<T::Value, D::Error> {
        self.inner.deserialize(Collector::new(value, self.found))
    }
}

impl<'a, 'de, A: EnumAccess<'de>> EnumAccess<'de> for Collector<'a, A> {
    type Error = A::Error;
    type Variant = Variant<'a, 'de, A::Variant>;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self::Variant), A::Error> {
        let (Name(name), inner) = self.inner.variant_seed(PhantomData::<Name<'de>>)?;
        let known = seed.deserialize(name.as_ref().into_deserializer())?;
        Ok((known, Variant { inner, name, found: self.found }))
    }
}

/// What an enum's variant holds: in JSON, an object with the variant's name as its only field.
#[derive(Debug)]
pub struct Variant<'a, 'de, A> {
    inner: A,
    name: Cow<'de, str>,
    found: &'a mut Found,
}

impl<'de, A: VariantAccess<'de>> Variant<'_, 'de, A> {
    fn look_inside<T>(self, read: impl FnOnce(A, &mut Found) -> Result<T, A::Error>) -> Result<T, A::Error> {
        let (mut inside, mut level) = (Found::Nothing, Level::default());
        let value = read(self.inner, &mut inside)?;
        level.note(&self.name, inside);
        *self.found = Found::Inside(level);
        Ok(value)
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Variant<'_, 'de, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, A::Error> {
        self.look_inside(|inner, inside| inner.newtype_variant_seed(Collector::new(seed, inside)))
    }

    fn tuple_variant<V: de::Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.inner.tuple_variant(length, visitor)
    }

    fn struct_variant<V: de::Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.look_inside(|inner, inside| inner.struct_variant(fields, Collector::new(visitor, inside)))
    }
}

/// The name of a field or a variant, not copied where it can be borrowed from what is read.
struct Name<'de>(Cow<'de, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Borrowed(name)))
            }

            fn visit_str<E>(self, name: &str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Owned(name.to_owned())))
            }
        }

        from.deserialize_str(Visitor)
    }
}
