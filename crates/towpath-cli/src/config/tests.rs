//! Tests of layers, and of what is generated from the description of settings.

use schemars::JsonSchema;
use towpath_alto_server::settings::AltoConfig;
use towpath_server::ServeConfig;

use super::{description::SectionForm, *};
use crate::cache::CacheConfig;

fn load_with(environment: &[(&str, &str)], flags: &str) -> Result<Layered<ServeConfig>, ConfigError> {
    let environment = environment.iter().map(|(name, value)| (name.to_string(), value.to_string()));
    load("serve", None, environment, flags.parse().unwrap())
}

#[test]
fn flags_win_over_the_environment_which_wins_over_defaults() {
    let layered = load_with(&[("TOWPATH_SERVE_SITE", "env"), ("TOWPATH_SERVE_LIMITS_IDLE", "5s")], "site = 'flag'");
    let Layered { settings, origins } = layered.unwrap();
    assert_eq!(settings.site, "flag");
    assert_eq!(settings.limits.idle.to_string(), "5s");
    assert_eq!(origins["site"].1, "flag");
    assert_eq!(origins["limits.idle"].1, "environment TOWPATH_SERVE_LIMITS_IDLE");
    assert_eq!(origins["limits.stall"].1, "default");
}

#[test]
fn every_setting_can_be_made_in_the_environment() {
    for (key, (value, _)) in load_with(&[], "").unwrap().origins {
        let name = format!("TOWPATH_SERVE_{}", key.replace('.', "_").to_uppercase());
        let origins = load_with(&[(&name, &value.to_string())], "").unwrap().origins;
        assert_eq!(origins[&key].1, format!("environment {name}"));
    }
}

#[test]
fn passwords_and_tokens_in_urls_are_not_shown() {
    let flags = "origin = 'https://alice:hush@host/store?authz=hush&x=1'\n\
                 [[access.issuers]]\nissuer = 'https://bob:hush@issuer/'\nbase_path = '/'\n";
    let layered: Layered<CacheConfig> = load("cache", None, std::iter::empty(), flags.parse().unwrap()).unwrap();
    let lines = command::lines(&layered, &description::sections::<CacheConfig>());
    assert!(!lines.contains("hush"), "{lines}");
    for shown in ["https://alice:***@host/store?authz=", "&x=1", "https://bob:***@issuer/"] {
        assert!(lines.contains(shown), "{lines}");
    }
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_known_one() {
    let error = load_with(&[], "lisen = []").unwrap_err().to_string();
    assert!(error.starts_with("flag: unknown field `lisen`"), "{error}");
    assert!(error.ends_with("did you mean `listen`?"), "{error}");
}

/// Asserts that each file of settings `T` has an error with this end, after the name of the file.
fn assert_errors<T: Default + Serialize + DeserializeOwned>(files: &[(&str, &str)]) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("settings.toml");
    for (text, expected) in files {
        disk::write(&path, text.as_bytes()).unwrap();
        let Err(error) = load::<T>("role", Some(&path), std::iter::empty(), Table::new()) else {
            panic!("{text} is valid")
        };
        let error = error.to_string();
        let place = error.strip_prefix(&path.display().to_string()).unwrap_or_else(|| panic!("{error}"));
        assert!(place.starts_with(expected), "{text}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn an_error_of_a_file_has_its_line_and_key() {
    assert_errors::<ServeConfig>(&[
        ("root = '/'\n[limits]\nidle = 'soon'\n", ":3: limits.idle: `soon` is not a duration"),
        ("[limits]\nidle = '1h'\nidel = '2h'\n", ":3: limits.idel: unknown field `idel`"),
        ("\n[[access.anonymous]]\npath = '/'\nallow = ['red']\n", ":4: access.anonymous.allow: unknown variant `red`"),
        ("\n[[access.issuers]]\nbase_path = '/'\n", ":2: access.issuers: missing field `issuer`"),
        ("root = '/'\n\nlisten = [\n", ":"),
        ("listen = ['host:x']\n", ":1: listen: `host:x` has no valid port"),
        ("listen = [\n1094,\n[1095],\n]\n", ":1: listen: an address is a port"),
    ]);
}

#[test]
fn an_error_of_an_agent_has_its_line_and_key() {
    let many: String = (0..1000).map(|name| format!("[agents.{name}]\nkind = 'geoip'\nfile = 'f'\n")).collect();
    let topology = "[agents.t]\nkind = 'topology'\nname = 't'\nfile = 'f'\n";
    assert_errors::<AltoConfig>(&[
        ("[agents.a]\nkind = 'bmp'\nfrom = []\nlisten = 'x'\n", ":4: agents.a.listen: invalid socket address"),
        ("[agents.a]\nkind = 'statc'\nfile = 'f'\n", ":2: agents.a.kind: unknown variant `statc`"),
        ("\n[agents.a]\nfile = 'f'\n", ":2: agents.a: missing field `kind`"),
        ("\n[agents.a]\nkind = 'static'\n", ":2: agents.a: missing field `file`"),
        ("[agents.a]\nkind = 'topology'\nfile = 'f'\n", ":1: agents.a: missing field `name`"),
        (&format!("{many}{topology}refresh = 'x'\n"), ":3005: agents.t.refresh: `x` is not a duration"),
        ("[agents.a]\nkind = 'static'\nfile = 'f'\nrefersh = '1s'\n", ":4: agents.a.refersh: unknown field"),
        ("[agents.a]\nfile = 'f'\nurl = 'f'\nkind = 'static'\n", ":2: agents.a.file: duplicate field `file`"),
        (
            "[agents.a]\nkind = 'static'\nfile = 'f'\n[agents.m]\nkind = 'measurements'\nfiles = [\n'f',\n'root://h//f',\n]\n",
            ":8: agents.m.files: this is neither a file nor an http or https URL",
        ),
        (
            &format!("{topology}attach = {{ N = [\n'192.0.2.0/24',\n'192.0.2.1/24'] }}\n"),
            ":7: agents.t.attach.N: '192.0.2.1/24' is not a valid prefix",
        ),
        (
            &format!("{topology}[agents.t.attach]\nN = [['192.0.2.0/24']]\n"),
            ":6: agents.t.attach.N: invalid type: sequence",
        ),
        ("[rucio.rses]\nA = 'a b'\n", ":2: rucio.rses.A: \"a b\" is not an address"),
        ("[linked.north]\nurl = 'ftp://h/'\n", ":2: linked.north.url: 'ftp://h/' is not a valid address"),
    ]);
}

/// Asserts that the example of a role is a file with the defaults, and with every setting once the marks of comments
/// are removed. Then its settings are valid.
fn assert_example<T: Default + Serialize + DeserializeOwned + JsonSchema>(role: &str) {
    let sections = description::sections::<T>();
    let example = pages::example(role, &sections);
    let defaults: T = toml::from_str(&example).unwrap();
    assert_eq!(Table::try_from(defaults).unwrap(), Table::try_from(T::default()).unwrap());
    let is_setting = |line: &&str| line.starts_with('[') || (line.starts_with('#') && !line.starts_with("# "));
    let lines = example.lines().filter(is_setting).map(|line| line.trim_start_matches('#'));
    let all: Table = lines.collect::<Vec<_>>().join("\n").parse().unwrap();
    for section in &sections {
        let name_of = |name: &String| match &section.form {
            SectionForm::Kind { value, .. } if name == description::NAME => value.clone(),
            _ => name.clone(),
        };
        let at = |table: &Value, name: String| table.get(0).unwrap_or(table).get(name).cloned();
        let found =
            section.path.iter().map(name_of).try_fold(Value::Table(all.clone()), |table, name| at(&table, name));
        let found = found.unwrap_or_else(|| panic!("{section:?}"));
        let table = found.get(0).unwrap_or(&found);
        section.settings.iter().for_each(|setting| assert!(table.get(&setting.name).is_some(), "{setting:?}"));
    }
    assert!(sections.iter().flat_map(|section| &section.settings).all(|setting| !setting.description.is_empty()));
    all.try_into::<T>().map(drop).expect("the examples are values of the right types");
}

#[test]
fn the_examples_are_valid_files_with_every_setting() {
    assert_example::<ServeConfig>("serve");
    assert_example::<AltoConfig>("alto");
    assert_example::<CacheConfig>("cache");
}

#[test]
fn unset_keys_are_shown_also_those_of_entries() {
    let layered: Layered<AltoConfig> = load(
        "alto",
        None,
        std::iter::empty(),
        "[agents.glass]\nkind = 'looking-glass'\nurl = 'http://h/'\nrouter = 'r'\nform.query = 'route'\n\
         [agents.list]\nkind = 'sites'\nfile = 'f'\nrefresh = '1m'\n[rucio.rses]\nA = 'h'\n"
            .parse()
            .unwrap(),
    )
    .unwrap();
    let lines = command::lines(&layered, &description::sections::<AltoConfig>());
    let lines: Vec<&str> =
        lines.lines().filter(|line| !line.ends_with("# default") || line.starts_with("agents")).collect();
    assert_eq!(
        lines,
        [
            "# access.passwords is unset",
            "agents.glass.form.query = \"route\"  # flag",
            "agents.glass.kind = \"looking-glass\"  # flag",
            "agents.glass.queries = []  # default",
            "# agents.glass.refresh is unset",
            "agents.glass.router = \"r\"  # flag",
            "agents.glass.serves = []  # default",
            "agents.glass.url = \"http://h/\"  # flag",
            "agents.list.file = \"f\"  # flag",
            "agents.list.kind = \"sites\"  # flag",
            "agents.list.map = \"default\"  # default",
            "agents.list.refresh = \"1m\"  # flag",
            "# compatibility is unset",
            "# rucio.config is unset",
            "rucio.rses.A = \"h\"  # flag",
            "# rucio.sites is unset",
            "# rucio.statement is unset",
            "# snapshot is unset",
            "# tls.certificate is unset",
            "# tls.key is unset",
            "# url is unset",
        ]
    );
}

#[test]
fn the_page_of_the_documentation_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/settings.md");
    let is_current = command::reference().as_bytes() == disk::read(&path, MAX_FILE_BYTES).unwrap();
    assert!(is_current, "run `towpath config reference > docs/reference/settings.md`");
}

#[test]
fn a_wrong_value_names_its_layer() {
    let error = load_with(&[("TOWPATH_SERVE_LIMITS_IDLE", "soon")], "").unwrap_err().to_string();
    assert!(error.starts_with("environment TOWPATH_SERVE_LIMITS_IDLE: `soon` is not a duration"), "{error}");
}
