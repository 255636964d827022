//! Messages as trees of fields, without a schema: changed in one place and written again, every length around the change
//! is right. Bytes changed blindly are nearly always refused for a wrong length and never reach what is behind the wire.

use crate::choices::Choices;

/// One field: its number and what it holds.
#[derive(Clone, Debug)]
pub struct Field {
    number: u64,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    Varint(u64),
    Fixed64([u8; 8]),
    Fixed32([u8; 4]),
    Bytes(Vec<u8>),
    /// Bytes that can be read as fields, and are those of a message or of a text that looks like one.
    Message(Vec<Field>),
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..70).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// The fields of a message, if that is what the bytes are.
pub fn parse(mut bytes: &[u8]) -> Option<Vec<Field>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let mut take = |count: usize| {
            let (taken, rest) = bytes.split_at_checked(count)?;
            bytes = rest;
            Some(taken)
        };
        let content = match key & 7 {
            0 => Content::Varint(varint(&mut bytes)?),
            1 => Content::Fixed64(take(8)?.try_into().ok()?),
            5 => Content::Fixed32(take(4)?.try_into().ok()?),
            2 => {
                let length = varint(&mut bytes)?;
                let (content, rest) = bytes.split_at_checked(length.try_into().ok()?)?;
                bytes = rest;
                let inner = parse(content).filter(|inner| !inner.is_empty() && encode(inner) == content);
                inner.map_or_else(|| Content::Bytes(content.to_vec()), Content::Message)
            }
            _ => return None,
        };
        let number = key >> 3;
        if !(1..=30).contains(&number) {
            return None;
        }
        fields.push(Field { number, content });
    }
    Some(fields)
}

fn put(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The message that has these fields.
pub fn encode(fields: &[Field]) -> Vec<u8> {
    let mut out = Vec::new();
    for Field { number, content } in fields {
        let mut delimited = |bytes: &[u8]| {
            put(number << 3 | 2, &mut out);
            put(bytes.len() as u64, &mut out);
            out.extend(bytes);
        };
        match content {
            Content::Bytes(bytes) => delimited(bytes),
            Content::Message(inner) => delimited(&encode(inner)),
            Content::Varint(value) => {
                put(number << 3, &mut out);
                put(*value, &mut out);
            }
            Content::Fixed64(bytes) => {
                put(number << 3 | 1, &mut out);
                out.extend(bytes);
            }
            Content::Fixed32(bytes) => {
                put(number << 3 | 5, &mut out);
                out.extend(bytes);
            }
        }
    }
    out
}

/// Every list of fields in the tree that is not empty, as paths of positions.
fn lists(fields: &[Field], path: &mut Vec<usize>, found: &mut Vec<Vec<usize>>) {
    if fields.is_empty() {
        return;
    }
    found.push(path.clone());
    for (at, field) in fields.iter().enumerate() {
        if let Content::Message(inner) = &field.content {
            path.push(at);
            lists(inner, path, found);
            path.pop();
        }
    }
}

fn list<'a>(mut fields: &'a mut Vec<Field>, path: &[usize]) -> &'a mut Vec<Field> {
    for &at in path {
        fields = match &mut fields[at].content {
            Content::Message(inner) => inner,
            _ => unreachable!("paths lead through messages"),
        };
    }
    fields
}

/// A field from anywhere in the tree.
fn pick(fields: &mut Vec<Field>, choices: &mut Choices<'_>) -> Option<Field> {
    let mut all = Vec::new();
    lists(fields, &mut Vec::new(), &mut all);
    let from = list(fields, &all[choices.wide(all.len())..].first()?.clone());
    Some(from[choices.wide(from.len())].clone())
}

/// Changes one field somewhere in the tree.
pub fn mutate(fields: &mut Vec<Field>, choices: &mut Choices<'_>) {
    let Some(donor) = pick(fields, choices) else { return };
    let mut all = Vec::new();
    lists(fields, &mut Vec::new(), &mut all);
    let target = list(fields, &all[choices.wide(all.len())].clone());
    let at = choices.wide(target.len());
    match choices.below(8) {
        0 => drop(target.remove(at)),
        1 => target.insert(at, target[at].clone()),
        2 => target.insert(at, donor),
        // What another field holds: names that are taken, missing or cyclic, types and shapes that do not fit.
        3 | 4 => target[at].content = donor.content,
        5 => target[at].number = 1 + choices.below(26) as u64,
        6 => {
            let other = choices.wide(target.len());
            target.swap(at, other);
        }
        _ => match &mut target[at].content {
            Content::Varint(value) => {
                *value = [0, 1, 2, 8, 255, 1 << 31, 1 << 62, i64::MAX as u64, u64::MAX][choices.below(9)];
            }
            Content::Fixed64(bytes) => bytes[choices.below(8)] = choices.below(256) as u8,
            Content::Fixed32(bytes) => bytes[choices.below(4)] = choices.below(256) as u8,
            Content::Bytes(bytes) if !bytes.is_empty() => {
                let at = choices.wide(bytes.len());
                match choices.below(3) {
                    0 => bytes.truncate(at),
                    1 => bytes[at] = choices.below(256) as u8,
                    _ => bytes.insert(at, choices.below(256) as u8),
                }
            }
            Content::Bytes(bytes) => bytes.push(b'x'),
            Content::Message(inner) => inner.clear(),
        },
    }
}
