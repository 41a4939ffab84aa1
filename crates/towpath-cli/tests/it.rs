//! Tests of the program from outside.

#[cfg(test)]
mod it {
    mod agent;
    mod alto;
    mod alto_agents;
    mod alto_client;
    mod alto_delegates;
    mod alto_metrics;
    mod alto_snapshot;
    mod alto_streams;
    mod alto_views;
    mod copying;
    mod ending;
    mod environment;
    mod events;
    mod exports;
    mod idle;
    mod listing;
    mod lying;
    mod manual;
    mod missing;
    mod moving;
    mod order;
    mod outage;
    mod plain_server;
    mod planning;
    mod probing;
    mod program;
    mod removing;
    mod resuming;
    mod scheduling;
    mod secrets;
    mod serving;
    mod several;
    mod special_files;
    mod syncing;
    mod terminal;
    mod third_party;
    mod times;
    mod waiting;
    mod walking;
    mod wan;
}
