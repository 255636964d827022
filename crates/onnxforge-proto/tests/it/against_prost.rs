//! Our protobuf layer against `prost`: whatever one of them writes, the other reads as the same message.
//! `PROPTEST_CASES` sets the number of cases.

use onnxforge_proto::blob::Blob;
use onnxforge_proto::wire;
use onnxforge_testing::choices::Choices;
use onnxforge_testing::{cases, fields, models};
use proptest::prelude::*;

use crate::oracle::{self, Build, Make, Source};

fn ours<M: wire::Message>(bytes: &[u8]) -> Result<M, wire::WireError> {
    wire::decode(&Blob::from(bytes))
}

fn written<M: wire::Message>(message: &M) -> Vec<u8> {
    let encoder = wire::encode(message);
    let length = encoder.byte_len();
    let mut bytes = Vec::new();
    encoder.write_to(&mut bytes).unwrap();
    assert_eq!(bytes.len() as u64, length, "the announced length is the real one");
    bytes
}

/// What `prost` makes of the bytes, in its own canonical form: that compares the bits of floats too.
fn canonical<P: prost::Message + Default>(bytes: &[u8]) -> Result<Vec<u8>, prost::DecodeError> {
    P::decode(bytes).map(|message| message.encode_to_vec())
}

// --- A minimal walk over the wire, independent of both implementations.

fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn key(number: u32, wire: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_varint(u64::from(number) << 3 | u64::from(wire), &mut bytes);
    bytes
}

fn get_varint(bytes: &[u8], at: &mut usize) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let byte = bytes[*at];
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}

/// The fields of a message that has no groups.
fn split(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut fields = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        match get_varint(bytes, &mut at) & 7 {
            0 => drop(get_varint(bytes, &mut at)),
            1 => at += 8,
            2 => at += get_varint(bytes, &mut at) as usize,
            _ => at += 4,
        }
        fields.push(bytes[start..at].to_vec());
    }
    fields
}

// --- Known content.

fn same_content<P, M>(name: &str, seed: &[u8])
where
    P: prost::Message + Default + Make + Build<M>,
    M: wire::Message + PartialEq + std::fmt::Debug,
{
    let message = P::make(&mut Source::new(seed));
    let bytes = message.encode_to_vec();
    let built: M = message.build();
    let read: M = ours(&bytes).unwrap();
    assert_eq!(read, built, "{name}: every field by its name");
    let again = written(&built);
    assert_eq!(canonical::<P>(&again).unwrap(), bytes, "{name}: built and written by us");
    assert_eq!(written(&read), again, "{name}: read and written by us");
    assert_eq!(again.len(), bytes.len(), "{name}: nothing is written twice or at length");
}

/// Messages one after the other are one message: lists grow, scalars are replaced, messages merge, the last of a `oneof` wins.
fn merges<P, M>(name: &str, first: &[u8], second: &[u8])
where
    P: prost::Message + Default + Make + Build<M>,
    M: wire::Message + PartialEq + std::fmt::Debug,
{
    let mut bytes = P::make(&mut Source::new(first)).encode_to_vec();
    bytes.extend(P::make(&mut Source::new(second)).encode_to_vec());
    let read: M = ours(&bytes).unwrap();
    assert_eq!(canonical::<P>(&written(&read)).unwrap(), canonical::<P>(&bytes).unwrap(), "{name}");
}

fn keeps_unknown<P, M>(name: &str, seed: &[u8], extra: &[(usize, Vec<u8>)])
where
    P: prost::Message + Default + Make + Build<M>,
    M: wire::Message + PartialEq + std::fmt::Debug,
{
    let message = P::make(&mut Source::new(seed));
    let mut fields: Vec<(Vec<u8>, bool)> =
        split(&message.encode_to_vec()).into_iter().map(|field| (field, false)).collect();
    for (place, field) in extra {
        fields.insert(place % (fields.len() + 1), (field.clone(), true));
    }
    let bytes: Vec<u8> = fields.iter().flat_map(|(field, _)| field).copied().collect();
    let unknown: Vec<u8> = fields.iter().filter(|f| f.1).flat_map(|(field, _)| field).copied().collect();
    let mut read: M = ours(&bytes).unwrap();
    assert_eq!(read.unknown_mut().0, unknown, "{name}: byte for byte and in their order");
    let again = written(&read);
    assert_eq!(again.len(), bytes.len(), "{name}");
    assert_eq!(ours::<M>(&again).unwrap(), read, "{name}: they survive another round");
    assert_eq!(
        canonical::<P>(&again).unwrap(),
        message.encode_to_vec(),
        "{name}: what is known is untouched"
    );
}

/// Numbers that no message uses, in every wire type; keys and lengths also in longer forms than needed.
fn unknown_field() -> impl Strategy<Value = Vec<u8>> {
    let number = prop_oneof![Just(17u32), Just(19), Just(24), 27u32..1000, Just((1 << 29) - 1)];
    let leaf = prop_oneof![
        (any::<u64>(), 0..3usize).prop_map(|(value, padding)| {
            let mut bytes = Vec::new();
            put_varint(value, &mut bytes);
            // A longer form of the same number, within ten bytes.
            for _ in 0..padding.min(10 - bytes.len()) {
                *bytes.last_mut().unwrap() |= 0x80;
                bytes.push(0);
            }
            (0u8, bytes)
        }),
        any::<[u8; 8]>().prop_map(|bytes| (1, bytes.to_vec())),
        prop::collection::vec(any::<u8>(), 0..200).prop_map(|content| {
            let mut bytes = Vec::new();
            put_varint(content.len() as u64, &mut bytes);
            bytes.extend(content);
            (2, bytes)
        }),
        any::<[u8; 4]>().prop_map(|bytes| (5, bytes.to_vec())),
    ];
    let field =
        (number.clone(), leaf).prop_map(|(number, (wire, bytes))| [key(number, wire), bytes].concat());
    field.prop_recursive(4, 12, 3, move |inner| {
        (number.clone(), prop::collection::vec(inner, 0..3))
            .prop_map(|(number, inner)| [key(number, 3), inner.concat(), key(number, 4)].concat())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(48)))]

    #[test]
    fn every_message_means_the_same_to_both(seed in prop::collection::vec(any::<u8>(), 0..600)) {
        for_every_message!(same_content, &seed);
    }

    #[test]
    fn repeated_occurrences_merge(
        first in prop::collection::vec(any::<u8>(), 0..300),
        second in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        for_every_message!(merges, &first, &second);
    }

    #[test]
    fn unknown_fields_survive_byte_for_byte(
        seed in prop::collection::vec(any::<u8>(), 0..200),
        extra in prop::collection::vec((any::<usize>(), unknown_field()), 0..4),
    ) {
        for_every_message!(keeps_unknown, &seed, &extra);
    }

    #[test]
    fn packed_and_apart_are_the_same_list(
        runs in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u64>(), 0..5)), 0..6),
    ) {
        lists(&runs);
    }

    #[test]
    fn changed_messages_are_judged_alike(
        seed in prop::collection::vec(any::<u8>(), 0..300),
        changes in prop::collection::vec(any::<[u8; 12]>(), 0..4),
    ) {
        for_every_message!(judged_alike, &seed, &changes);
    }

    #[test]
    fn arbitrary_bytes_are_no_reason_to_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        for_every_message!(judged, &bytes);
    }
}

/// A message with some fields changed, whose lengths are right again.
fn judged_alike<P, M>(name: &str, seed: &[u8], changes: &[[u8; 12]])
where
    P: prost::Message + Default + Make + Build<M>,
    M: wire::Message + PartialEq + std::fmt::Debug,
{
    let Some(mut fields) = fields::parse(&P::make(&mut Source::new(seed)).encode_to_vec()) else { return };
    changes.iter().for_each(|bytes| fields::mutate(&mut fields, &mut Choices(bytes.iter())));
    judged::<P, M>(name, &fields::encode(&fields));
}

/// What `prost` accepts we accept with the same content. (It refuses a known field in a wrong wire type; we keep that.)
/// Answers whether there was something to compare.
fn judged<P, M>(name: &str, bytes: &[u8]) -> bool
where
    P: prost::Message + Default,
    M: wire::Message + PartialEq + std::fmt::Debug,
{
    let Ok(expected) = canonical::<P>(bytes) else {
        if let Err(error) = ours::<M>(bytes) {
            assert!(error.offset <= bytes.len() as u64, "{name}: {error} lies outside");
        }
        return false;
    };
    let read: M = ours(bytes).unwrap_or_else(|error| panic!("{name}: {error} in {bytes:02x?}"));
    assert_eq!(canonical::<P>(&written(&read)).unwrap(), expected, "{name}: {bytes:02x?}");
    !expected.is_empty()
}

/// Most changes leave something that `prost` reads and that is worth comparing.
#[test]
fn changes_leave_something_to_compare() {
    use onnxforge_proto::schema;
    let mut compared = 0;
    for seed in 0..500u32 {
        let bytes: Vec<u8> =
            (0..200u32).map(|i| (seed.wrapping_add(i).wrapping_mul(2_654_435_761) >> 11) as u8).collect();
        let message = oracle::GraphProto::make(&mut Source::new(&bytes));
        let mut fields = fields::parse(&prost::Message::encode_to_vec(&message)).unwrap();
        fields::mutate(&mut fields, &mut Choices(bytes[100..].iter()));
        compared += u32::from(judged::<oracle::GraphProto, schema::GraphProto>(
            "GraphProto",
            &fields::encode(&fields),
        ));
    }
    assert!((200..500).contains(&compared), "{compared} of 500");
}

/// Every repeated scalar: message by its number, the field's number and wire type.
fn lists(runs: &[(bool, Vec<u64>)]) {
    fn list<P, M>(name: &str, number: u32, element: u8, runs: &[(bool, Vec<u64>)])
    where
        P: prost::Message + Default + Build<M>,
        M: wire::Message + PartialEq + std::fmt::Debug,
    {
        let put = |value: u64, out: &mut Vec<u8>| match element {
            0 => put_varint(value, out),
            1 => out.extend(value.to_le_bytes()),
            _ => out.extend((value as u32).to_le_bytes()),
        };
        let mut bytes = Vec::new();
        for (packed, values) in runs {
            if *packed {
                let mut run = Vec::new();
                values.iter().for_each(|&value| put(value, &mut run));
                bytes.extend(key(number, 2));
                put_varint(run.len() as u64, &mut bytes);
                bytes.extend(run);
            } else {
                for &value in values {
                    bytes.extend(key(number, element));
                    put(value, &mut bytes);
                }
            }
        }
        let mut read: M = ours(&bytes).unwrap();
        assert!(read.unknown_mut().0.is_empty(), "{name} {number}");
        let expected = canonical::<P>(&bytes).unwrap();
        assert_eq!(written(&read), expected, "{name} {number}: in the form that the schema says");
    }
    use onnxforge_proto::schema;
    for (number, element) in [(1, 0), (4, 5), (5, 0), (7, 0), (10, 1), (11, 0)] {
        list::<oracle::TensorProto, schema::TensorProto>("TensorProto", number, element, runs);
    }
    list::<oracle::AttributeProto, schema::AttributeProto>("AttributeProto", 7, 5, runs);
    list::<oracle::AttributeProto, schema::AttributeProto>("AttributeProto", 8, 0, runs);
    list::<oracle::SparseTensorProto, schema::SparseTensorProto>("SparseTensorProto", 3, 0, runs);
    list::<oracle::ShardingSpecProto, schema::ShardingSpecProto>("ShardingSpecProto", 2, 0, runs);
    list::<oracle::IntIntListEntryProto, schema::IntIntListEntryProto>("IntIntListEntryProto", 2, 0, runs);
}

/// Every number with every wire type: a field where `prost` sees one, else kept as unknown.
#[test]
fn a_known_number_with_a_wrong_wire_type_is_unknown() {
    fn check<P, M>(name: &str, known: &mut usize, wrong: &mut usize)
    where
        P: prost::Message + Default + Build<M>,
        M: wire::Message + PartialEq + std::fmt::Debug,
    {
        let nothing = P::default().encode_to_vec();
        for number in 1..=30 {
            for wire in [0u8, 1, 2, 3, 5] {
                // A content that is a text, a list of numbers and (for one of these numbers) a message too.
                let contents: Vec<Vec<u8>> = match wire {
                    0 => vec![vec![1]],
                    1 => vec![vec![1; 8]],
                    3 => vec![[key(28, 0), vec![1], key(number, 4)].concat()],
                    5 => vec![vec![1; 4]],
                    _ => (1..16u8).map(|inner| [&[8][..], &[inner << 3, 1].repeat(4)].concat()).collect(),
                };
                let candidates = contents.iter().map(|content| [key(number, wire), content.clone()].concat());
                let accepted =
                    candidates.clone().find_map(|b| canonical::<P>(&b).ok().map(|found| (b, found)));
                let is_field = accepted.as_ref().is_some_and(|(_, found)| *found != nothing);
                let bytes =
                    accepted.as_ref().map_or_else(|| candidates.clone().next().unwrap(), |(b, _)| b.clone());
                let mut read: M = ours(&bytes).unwrap();
                let unknown = read.unknown_mut().0.clone();
                if is_field {
                    *known += 1;
                    assert!(unknown.is_empty(), "{name} {number} in wire type {wire} is a field");
                } else {
                    *wrong += usize::from(accepted.is_none());
                    assert_eq!(unknown, bytes, "{name} {number} in wire type {wire} is not a field");
                    assert_eq!(written(&read), bytes);
                }
            }
        }
    }
    let (mut known, mut wrong) = (0, 0);
    for_every_message!(check, &mut known, &mut wrong);
    // The 11 lists of numbers have two forms, every other field one of the five wire types.
    assert_eq!((known, wrong), (FIELDS + 11, FIELDS * 5 - FIELDS - 11));
}

/// Fields of all messages together.
const FIELDS: usize = 131;

#[test]
fn the_last_of_a_oneof_wins_and_the_same_one_merges() {
    use onnxforge_proto::schema::{Dimension, TypeProto};
    let len = |number, content: &[u8]| [key(number, 2), vec![content.len() as u8], content.to_vec()].concat();
    let tensor = |content: &[u8]| len(1, content);
    // tensor_type with an element type, then with a shape: one tensor_type with both.
    let merged: TypeProto = ours(&[tensor(&[0x08, 1]), tensor(&[0x12, 0])].concat()).unwrap();
    let ty = merged.tensor_type.unwrap();
    assert_eq!((ty.elem_type, ty.shape.is_some()), (Some(1), true));
    // Another kind between them: the first is forgotten.
    let fresh: TypeProto = ours(&[tensor(&[0x08, 1]), len(4, &[]), tensor(&[0x12, 0])].concat()).unwrap();
    assert_eq!(fresh.sequence_type, None);
    assert_eq!(fresh.tensor_type.unwrap().elem_type, None);
    for numbers in [[1, 4], [4, 5], [5, 7], [7, 8], [8, 9], [9, 1], [1, 9]] {
        let bytes: Vec<u8> = numbers.iter().flat_map(|&number| len(number, &[])).collect();
        let read: TypeProto = ours(&bytes).unwrap();
        assert_eq!(written(&read), len(numbers[1], &[]));
    }
    let named: Dimension = ours(&[0x08, 3, 0x12, 1, b'n']).unwrap();
    assert_eq!((named.dim_value, named.dim_param.as_deref()), (None, Some("n")));
    let sized: Dimension = ours(&[0x12, 1, b'n', 0x08, 3]).unwrap();
    assert_eq!((sized.dim_value, sized.dim_param), (Some(3), None));
    // A wrong wire type is not an occurrence of the field and clears nothing.
    let kept: Dimension = ours(&[0x12, 1, b'n', 0x0d, 0, 0, 0, 0]).unwrap();
    assert_eq!((kept.dim_param.as_deref(), &kept.unknown.0[..]), (Some("n"), &[0x0d, 0, 0, 0, 0][..]));
}

#[test]
fn the_bits_of_floats_are_kept() {
    use onnxforge_proto::schema::{AttributeProto, TensorProto};
    for bits in [0x7fc0_0000u32, 0xffc0_0001, 0x7f80_0001, 0x8000_0000, 1, 0x7f80_0000] {
        let value = bits.to_le_bytes();
        for number in [2, 7] {
            let bytes = [key(number, 5), value.to_vec()].concat();
            assert_eq!(written(&ours::<AttributeProto>(&bytes).unwrap()), bytes, "{bits:08x}");
        }
        let bytes = [key(4, 2), vec![4], value.to_vec()].concat();
        assert_eq!(written(&ours::<TensorProto>(&bytes).unwrap()), bytes, "{bits:08x}");
    }
}

#[test]
fn broken_messages_are_refused_with_their_place() {
    use onnxforge_proto::schema::{ModelProto, TensorProto};
    use onnxforge_proto::wire::WireErrorKind as Kind;
    let refused =
        |bytes: &[u8]| ours::<ModelProto>(bytes).map_err(|error| (error.kind, error.offset)).unwrap_err();
    assert_eq!(refused(&[0x08]), (Kind::Truncated, 1));
    assert_eq!(refused(&[0x08, 0x80]), (Kind::Truncated, 1));
    assert_eq!(refused(&[[0x08].as_slice(), &[0xff; 10]].concat()), (Kind::Varint, 1));
    assert_eq!(refused(&[[0x08].as_slice(), &[0xff; 9], &[2]].concat()), (Kind::Varint, 1));
    assert_eq!(refused(&[0x00, 0]), (Kind::FieldNumber, 0));
    assert_eq!(refused(&[0x08, 1, 0x0e, 0]), (Kind::WireType(6), 2));
    assert_eq!(refused(&[0x0f, 0]), (Kind::WireType(7), 0));
    assert_eq!(refused(&[0x12, 5, b'a']), (Kind::TooLong { claimed: 5, left: 1 }, 1));
    assert_eq!(refused(&[0x12, 1, 0xff]), (Kind::Utf8, 1));
    assert_eq!(refused(&[0x0c]).0, Kind::Group, "an end without a start");
    assert_eq!(refused(&[0x8b, 1, 0x94, 1]).0, Kind::Group, "the end of another group");
    assert_eq!(refused(&[0x8b, 1, 0x08, 1]).0, Kind::Group, "no end");
    // A length may not reach past the message around it, even where bytes follow.
    assert_eq!(refused(&[0x3a, 2, 0x12, 1, b'a', b'b']).0, Kind::TooLong { claimed: 1, left: 0 });
    let packed = ours::<TensorProto>(&[0x22, 3, 0, 0, 0]).unwrap_err();
    assert_eq!(packed.kind, Kind::Packed);
    let cut = ours::<TensorProto>(&[0x2a, 1, 0x80, 0]).unwrap_err();
    assert_eq!(cut.kind, Kind::Truncated, "a packed number may not reach past its run");
}

#[test]
fn real_models_mean_the_same_to_both() {
    for path in models() {
        let bytes = std::fs::read(&path).unwrap();
        let expected: oracle::ModelProto = prost::Message::decode(&bytes[..]).unwrap();
        let read: onnxforge_proto::schema::ModelProto = ours(&bytes).unwrap();
        assert!(read == expected.build(), "{}", path.display());
        let again = written(&read);
        assert!(canonical::<oracle::ModelProto>(&again).unwrap() == prost::Message::encode_to_vec(&expected));
        assert!(again == bytes, "{}: the usual writers order fields as we do", path.display());
    }
}
