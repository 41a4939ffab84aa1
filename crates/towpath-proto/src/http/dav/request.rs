//! The bodies of PROPFIND, PROPPATCH and LOCK.

use std::collections::HashSet;

use super::{
    property::LockScope,
    xml::{Element, InvalidXml, Limits, Name},
};

/// The selection of a PROPFIND (RFC 4918 §9.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Propfind {
    /// All properties that the server returns by default, and these.
    AllProp {
        /// Properties requested in addition.
        include: Vec<Name>,
    },
    /// The names of all properties.
    PropName,
    /// These properties.
    Prop(Vec<Name>),
}

impl Propfind {
    /// Parses a request body; an empty body selects all properties.
    pub fn parse(body: &[u8]) -> Result<Self, InvalidXml> {
        if body.trim_ascii().is_empty() {
            return Ok(Self::AllProp { include: Vec::new() });
        }
        let root = root(body, "propfind")?;
        let kinds = ["allprop", "propname", "prop"].map(|kind| root.dav_child(kind));
        match kinds {
            [Some(_), None, None] => {
                Ok(Self::AllProp { include: root.dav_child("include").map(names).unwrap_or_default() })
            }
            [None, Some(_), None] => Ok(Self::PropName),
            [None, None, Some(prop)] => Ok(Self::Prop(names(prop))),
            _ => Err(InvalidXml::Unexpected("exactly one of allprop, propname and prop is needed")),
        }
    }
}

/// Returns the names of the elements in `list`, each once: a repeated name must not multiply the response.
fn names(list: &Element) -> Vec<Name> {
    let mut seen = HashSet::new();
    list.children.iter().map(|child| &child.name).filter(|name| seen.insert(*name)).cloned().collect()
}

/// The changes of a PROPPATCH, in order (RFC 4918 §9.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proppatch(pub Vec<PropertyChange>);

/// One change of a property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PropertyChange {
    /// The property.
    pub name: Name,
    /// The kind of change.
    pub action: Action,
}

/// The change of one property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Set the property to this value, which is the property's element itself.
    Set(Element),
    /// Remove the property.
    Remove,
}

impl Proppatch {
    /// Parses a request body.
    pub fn parse(body: &[u8]) -> Result<Self, InvalidXml> {
        let mut changes = Vec::new();
        for instruction in root(body, "propertyupdate")?.children {
            let set = instruction.name.is_dav("set");
            if !set && !instruction.name.is_dav("remove") {
                continue; // Unknown elements are ignored (RFC 4918 §17).
            }
            for prop in instruction.children.into_iter().filter(|child| child.name.is_dav("prop")) {
                changes.extend(prop.children.into_iter().map(|property| PropertyChange {
                    name: property.name.clone(),
                    action: if set { Action::Set(property) } else { Action::Remove },
                }));
            }
        }
        if changes.is_empty() {
            return Err(InvalidXml::Unexpected("nothing to set or remove"));
        }
        Ok(Self(changes))
    }
}

/// The body of a LOCK request (RFC 4918 §9.10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockRequest {
    /// A new write lock.
    New {
        /// Whether other clients may hold a lock too.
        scope: LockScope,
        /// The element `owner`, returned unchanged in responses.
        owner: Option<Element>,
    },
    /// Extends the lock in the `If` field.
    Refresh,
}

impl LockRequest {
    /// Parses a request body; an empty body is a refresh.
    pub fn parse(body: &[u8]) -> Result<Self, InvalidXml> {
        if body.trim_ascii().is_empty() {
            return Ok(Self::Refresh);
        }
        let root = root(body, "lockinfo")?;
        let is_write = root.dav_child("locktype").is_some_and(|kind| kind.dav_child("write").is_some());
        let scope = root.dav_child("lockscope").and_then(|scope| {
            let named = |scope_name| scope.dav_child(scope_name).is_some();
            [LockScope::Exclusive, LockScope::Shared].into_iter().find(|scope| named(scope.as_str()))
        });
        match scope {
            Some(scope) if is_write => Ok(Self::New { scope, owner: root.dav_child("owner").cloned() }),
            _ => Err(InvalidXml::Unexpected("a lock needs a scope and the type write")),
        }
    }
}

/// Parses the root element, which must have that name.
fn root(body: &[u8], local: &str) -> Result<Element, InvalidXml> {
    let root = Element::parse(body, Limits::REQUEST)?;
    if root.name.is_dav(local) { Ok(root) } else { Err(InvalidXml::Unexpected("unexpected root element")) }
}
