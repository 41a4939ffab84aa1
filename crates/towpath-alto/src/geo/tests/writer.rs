//! Writes databases after <https://maxmind.github.io/MaxMind-DB/>.

use ipnet::IpNet;
use serde_json::{Value, json};

const STRING: u8 = 2;
const DOUBLE: u8 = 3;
const UINT16: u8 = 5;
const UINT32: u8 = 6;
const MAP: u8 = 7;
const UINT64: u8 = 9;
const ARRAY: u8 = 11;

/// The target of a branch in the search tree.
#[derive(Clone, Copy)]
enum Branch {
    Nothing,
    Node(usize),
    /// Offset in the data section.
    Data(usize),
}

/// Builds a database of records with disjoint prefixes. With `ip_version` 4, all must be IPv4.
pub(super) fn database(record_bits: u16, ip_version: u16, records: &[(&str, Value)]) -> Vec<u8> {
    let mut nodes = vec![[Branch::Nothing; 2]];
    let mut data = Vec::new();
    for (prefix, record) in records {
        insert(&mut nodes, ip_version, prefix.parse().unwrap(), Branch::Data(data.len()));
        encode(record, &mut data);
    }
    let mut database = Vec::new();
    for node in &nodes {
        let [left, right] = node.map(|branch| match branch {
            Branch::Nothing => nodes.len(),
            Branch::Node(number) => number,
            Branch::Data(place) => nodes.len() + 16 + place,
        });
        write_node(record_bits, u32::try_from(left).unwrap(), u32::try_from(right).unwrap(), &mut database);
    }
    database.extend([0; 16]);
    database.extend(data);
    database.extend(metadata(u32::try_from(nodes.len()).unwrap(), record_bits, ip_version));
    database
}

/// IPv4 prefixes are below `::/96` in an IPv6 tree.
fn insert(nodes: &mut Vec<[Branch; 2]>, ip_version: u16, prefix: IpNet, data: Branch) {
    let (bits, length) = match prefix {
        IpNet::V4(prefix) => (u128::from(u32::from(prefix.addr())), 96 + prefix.prefix_len()),
        IpNet::V6(prefix) => (u128::from(prefix.addr()), prefix.prefix_len()),
    };
    let first = if ip_version == 4 { 96 } else { 0 };
    let mut node = 0;
    for position in first..length {
        let side = usize::from((bits >> (127 - position)) & 1 == 1);
        if position + 1 == length {
            nodes[node][side] = data;
        } else if let Branch::Node(next) = nodes[node][side] {
            node = next;
        } else {
            nodes[node][side] = Branch::Node(nodes.len());
            node = nodes.len();
            nodes.push([Branch::Nothing; 2]);
        }
    }
}

fn write_node(record_bits: u16, left: u32, right: u32, database: &mut Vec<u8>) {
    let (left, right) = (left.to_be_bytes(), right.to_be_bytes());
    match record_bits {
        24 => database.extend([&left[1..], &right[1..]].concat()),
        28 => database.extend([&left[1..], &[(left[0] << 4) | right[0]], &right[1..]].concat()),
        _ => database.extend([left, right].concat()),
    }
}

fn metadata(nodes: u32, record_bits: u16, ip_version: u16) -> Vec<u8> {
    let mut metadata = b"\xab\xcd\xefMaxMind.com".to_vec();
    let others = [("database_type", json!("Test")), ("description", json!({ "en": "Test" })), ("languages", json!([]))];
    head(MAP, 6 + others.len(), &mut metadata);
    for (name, value) in others {
        encode(&name.into(), &mut metadata);
        encode(&value, &mut metadata);
    }
    for (name, kind, value) in [
        ("binary_format_major_version", UINT16, 2),
        ("binary_format_minor_version", UINT16, 0),
        ("build_epoch", UINT64, 1_700_000_000),
        ("ip_version", UINT16, u32::from(ip_version)),
        ("node_count", UINT32, nodes),
        ("record_size", UINT16, u32::from(record_bits)),
    ] {
        encode(&name.into(), &mut metadata);
        number(kind, value, &mut metadata);
    }
    metadata
}

fn encode(value: &Value, data: &mut Vec<u8>) {
    match value {
        Value::String(text) => {
            head(STRING, text.len(), data);
            data.extend(text.as_bytes());
        }
        Value::Number(integer) if integer.is_u64() => {
            number(UINT32, u32::try_from(integer.as_u64().unwrap()).unwrap(), data);
        }
        Value::Number(double) => {
            head(DOUBLE, 8, data);
            data.extend(double.as_f64().unwrap().to_be_bytes());
        }
        Value::Array(elements) => {
            head(ARRAY, elements.len(), data);
            elements.iter().for_each(|element| encode(element, data));
        }
        Value::Object(members) => {
            head(MAP, members.len(), data);
            for (name, value) in members {
                encode(&name.as_str().into(), data);
                encode(value, data);
            }
        }
        Value::Null | Value::Bool(_) => panic!("no test writes {value}"),
    }
}

/// Writes an integer without leading zero bytes.
fn number(kind: u8, value: u32, data: &mut Vec<u8>) {
    let bytes = value.to_be_bytes();
    let bytes = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
    head(kind, bytes.len(), data);
    data.extend(bytes);
}

/// Writes the control byte, with the extended type and a size below 285.
fn head(kind: u8, size: usize, data: &mut Vec<u8>) {
    let (in_head, behind) = if size < 29 { (size, None) } else { (29, Some(size - 29)) };
    let in_head = u8::try_from(in_head).unwrap();
    match kind {
        0..=MAP => data.push((kind << 5) | in_head),
        extended => data.extend([in_head, extended - MAP]),
    }
    data.extend(behind.map(|size| u8::try_from(size).unwrap()));
}
