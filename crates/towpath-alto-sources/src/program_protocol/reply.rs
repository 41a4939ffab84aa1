//! Output of a program queried on demand.

use serde_json::Value;

use super::{
    LineFault, parse,
    wire::{CostEndpoints, FactChange},
};
use towpath_alto::{delegation::Item, entity::Entity};

/// A line of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// An item and its value; not necessarily a requested one.
    Value(Item, Value),
    /// The end of the response.
    Done,
}

impl Reply {
    /// Parses a line, without its line ending; `None` if it is blank.
    ///
    /// # Errors
    /// [`LineFault`]. The line is ignored.
    pub fn read(line: &[u8]) -> Result<Option<Self>, LineFault> {
        let Some(line) = parse(line)? else { return Ok(None) };
        let reply = match line.into_change()? {
            None => return Ok(Some(Self::Done)),
            Some(FactChange::Cost((CostEndpoints::Prefixes(from, to), metric), cost)) => {
                let ends = Entity::Address(from.0).single_address().zip(Entity::Address(to.0).single_address());
                ends.map(|(from, to)| (Item::Cost(metric, from, to), cost.value().into()))
            }
            Some(FactChange::Property((entity, name), value)) => {
                entity.single_address().map(|address| (Item::Property(name, address), value))
            }
            Some(_) => None,
        };
        reply.map(|(item, value)| Some(Self::Value(item, value))).ok_or(LineFault::NoAnswer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_of_addresses() {
        let read = |line: &str| Reply::read(line.as_bytes());
        let (one, two) = ("192.0.2.1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        let cost = r#"{"metric": {"src": "192.0.2.1", "dst": "2001:db8::2", "metric": "delay-ow", "value": 5300.5}}"#;
        let item = Item::Cost("delay-ow".parse().unwrap(), one, two);
        assert_eq!(read(cost), Ok(Some(Reply::Value(item, 5300.5.into()))));
        let property = r#"{"property": {"entity": "ipv4:192.0.2.1", "name": "priv:x", "value": null}}"#;
        let item = Item::Property("priv:x".parse().unwrap(), one);
        assert_eq!(read(property), Ok(Some(Reply::Value(item, Value::Null))));
        assert_eq!(read(r#"{"commit": {}}"#), Ok(Some(Reply::Done)));
        assert_eq!(read(" "), Ok(None));
    }

    #[test]
    fn what_is_no_answer_is_told() {
        for line in [
            r#"{"metric": {"src": "192.0.2.0/24", "dst": "192.0.2.1", "metric": "delay-ow", "value": 1}}"#,
            r#"{"metric": {"map": "m", "src": "A", "dst": "B", "metric": "delay-ow", "value": 1}}"#,
            r#"{"property": {"entity": "ipv4:192.0.2.0/24", "name": "x", "value": 1}}"#,
            r#"{"property": {"entity": "m.pid:A", "name": "x", "value": 1}}"#,
            r#"{"withdraw": {"property": {"entity": "ipv4:192.0.2.1", "name": "x"}}}"#,
        ] {
            assert_eq!(Reply::read(line.as_bytes()), Err(LineFault::NoAnswer), "{line}");
        }
        for line in ["x", r#"{"metric": {"src": "192.0.2.1", "dst": "::1", "metric": "m", "value": -1}}"#] {
            assert!(matches!(Reply::read(line.as_bytes()), Err(LineFault::Invalid { .. })), "{line}");
        }
    }
}
