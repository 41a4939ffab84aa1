//! Responses of resources, tested against the checklist of the RFCs: each test is named after the items it covers.

#[cfg(test)]
mod it {
    mod calendars;
    mod compatibility;
    mod costs;
    mod noise;
    mod path_vector;
    mod properties;

    use std::net::IpAddr;

    use serde_json::Value;
    use towpath_alto::{agent_state::AgentState, directory::Directory, network_state::NetworkState, problem::Problem};

    /// The maps of RFC 7285 §11.2.1.7 and §11.2.3.7, some delays, and some properties.
    const EXAMPLE: &str = r#"
        [network-map.default]
        PID1 = ["192.0.2.0/24", "198.51.100.0/25"]
        PID2 = ["198.51.100.128/25"]
        PID3 = ["0.0.0.0/0", "::/0"]
        [cost-map.default.routingcost]
        PID1 = { PID1 = 1, PID2 = 5, PID3 = 10 }
        PID2 = { PID1 = 5, PID2 = 1, PID3 = 15 }
        PID3 = { PID1 = 20, PID2 = 15 }
        [cost-map.default.hopcount]
        PID1 = { PID2 = 3 }
        [properties."ipv4:192.0.2.0/24"]
        country = "CH"
        asn = "64500"
        [properties."ipv4:192.0.2.128/25"]
        country = "FR"
        [properties."default.pid:PID1"]
        country = "CH"
        [[costs]]
        src = "192.0.2.2"
        dst = "192.0.2.89"
        delay-ow = 100
        [[costs]]
        src = "192.0.2.2"
        dst = "198.51.100.34"
        delay-ow = 2000
        [[costs]]
        src = "192.0.2.2"
        dst = "203.0.113.45"
        delay-ow = 30000
    "#;

    /// A network state and its directory, queried by a client at 192.0.2.2.
    struct Site {
        network_state: NetworkState,
        directory: Directory,
    }

    impl Site {
        fn example() -> Self {
            Self::of(EXAMPLE)
        }

        fn of(facts: &str) -> Self {
            let network_state = NetworkState::of([&AgentState::parse(facts).unwrap()]).unwrap();
            let (directory, _) = Directory::of(&network_state);
            Self { network_state, directory }
        }

        fn post(&self, resource: &str, request: &Value) -> Result<Value, Problem> {
            let caller: IpAddr = "192.0.2.2".parse().unwrap();
            let resource = self.directory.find(resource).unwrap();
            let answer = resource.answer(&self.network_state, request, caller)?;
            assert_eq!(answer.media_type, resource.media_type());
            Ok(serde_json::from_slice(&answer.body).unwrap())
        }

        fn get(&self, resource: &str) -> Value {
            assert_eq!(self.directory.find(resource).unwrap().accepts(), None);
            self.post(resource, &Value::Null).unwrap()
        }

        /// Returns the code, field and value of the problem with a request.
        fn refused(&self, resource: &str, request: &Value) -> (&'static str, String, String) {
            let problem = self.post(resource, request).unwrap_err();
            (problem.code.name(), problem.field.unwrap_or_default(), problem.value.unwrap_or_default())
        }

        fn vtag(&self) -> Value {
            self.get("default")["meta"]["vtag"].clone()
        }
    }
}
