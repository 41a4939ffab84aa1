"""Campaigns: measurements of all combinations of round trip, transport, buffer, streams, tool and repetition over emulated paths.

    $ towpath lab measure plan.toml --output campaign

A campaign is a directory: `plan.toml`, `runs.jsonl` with a line for each run as it ends, and `runs.parquet` with those so far. An
interrupted one continues with the missing runs. The order is random within each repetition, so a slow change of the machine does
not look like an effect of the round trip.

- `plan`: the plan, and its cells.
- `emulator`: two hosts with `towpath wan`, as root. `sites`: real far ends.
- `tools`: iperf3, `towpath probe`, `towpath cp`, xrdcp and GridFTP, from host 2 to host 1.
- `machine`: processors, sysctls, and whether the processors were the limit of a run.
- `campaign`: the loop.
"""
