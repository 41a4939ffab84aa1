#!/usr/bin/env bash
# Records the conversations in crates/towpath-proto/tests/captures/ between the installed XRootD clients and server.
#
#   interop/xrootd-captures.sh [OUTPUT_DIRECTORY]
#
# Needs xrootd, xrdcp, xrdfs and python3-xrootd, and root, to run everything as an unprivileged user, so that no name
# of the machine's users gets into the recordings. Everything happens on loopback and in a temporary directory.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/../crates/towpath-proto/tests/captures}
port=$(python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
work=$(mktemp -d /tmp/xrootd-captures.XXXXXX)
trap 'kill "$server" 2>/dev/null; wait; rm -rf "$work"' EXIT

mkdir -p "$out" "$work/root/data" "$work/root/empty" "$work/root/many" "$work/admin" "$work/out"
cp "$here/record.py" "$here/xrootd-calls.py" "$here/xrootd-raw.py" "$work/"
# 9000 bytes: three pages, the last one short. Content is a function of the offset.
python3 -c 'import sys; sys.stdout.buffer.write(bytes((i * 7 + i // 256) % 251 for i in range(9000)))' \
    > "$work/root/data/small.bin"
cp "$work/root/data/small.bin" "$work/local.bin"
seq -f "$work/root/many/entry-with-a-rather-long-name-%03.0f" 130 | xargs touch
cat > "$work/server.cfg" <<CONFIG
all.export /
oss.localroot $work/root
all.adminpath $work/admin
xrd.port $port
xrootd.chksum max 2 adler32 crc32c
xrootd.async off
CONFIG
chown -R nobody "$work"

as_nobody=(setpriv --reuid=nobody --regid=nogroup --clear-groups env -i -C "$work" "HOME=$work" PATH=/usr/bin:/bin)

"${as_nobody[@]}" xrootd -c "$work/server.cfg" -l "$work/server.log" & server=$!
for _ in $(seq 100); do (exec 3<>/dev/tcp/127.0.0.1/$port) 2>/dev/null && break; sleep 0.1; done

# record NAME COMMAND...: SERVER in the command becomes the recorder's address.
address='root://127.0.0.1:{port}/'
record() {
    local name=$1; shift
    local words=() word title="$*"
    for word in "$@"; do words+=("${word//SERVER/$address}"); done
    "${as_nobody[@]}" /usr/bin/python3 "$work/record.py" --to 127.0.0.1:$port --out "$work/out/$name.txt" \
        --title "XRootD 5.5.3: ${title//$work/DIR}" -- "${words[@]}" > "$work/log" 2>&1 \
        || { echo "$name failed (may be intended):"; sed 's/^/    /' "$work/log"; }
}

record xrdcp-download xrdcp -f SERVER/data/small.bin "$work/copy.bin"
record xrdcp-upload xrdcp -f "$work/local.bin" SERVER/data/new.bin
record xrdcp-checksum xrdcp -f -C adler32 SERVER/data/small.bin "$work/copy.bin"
record xrdcp-missing xrdcp -f SERVER/data/missing.bin "$work/copy.bin"
record xrdcp-streams xrdcp -f -S 2 SERVER/data/small.bin "$work/copy.bin"
record xrdfs-ls xrdfs SERVER ls /
record xrdfs-ls-long xrdfs SERVER ls -l /data
record xrdfs-ls-checksum xrdfs SERVER ls -C /data
record xrdfs-ls-empty xrdfs SERVER ls -l /empty
record xrdfs-stat xrdfs SERVER stat /data/small.bin
record xrdfs-statvfs xrdfs SERVER statvfs /
record xrdfs-locate xrdfs SERVER locate /data/small.bin
record xrdfs-query-config xrdfs SERVER query config readv_ior_max readv_iov_max chksum tpc bind_max nonsense
record xrdfs-query-checksum xrdfs SERVER query checksum /data/small.bin?cks.type=adler32
record xrdfs-query-space xrdfs SERVER query space /
record xrdfs-query-xattr xrdfs SERVER query xattr /data/small.bin
record xrdfs-query-stats xrdfs SERVER query stats i
record xrdfs-spaceinfo xrdfs SERVER spaceinfo /
record xrdfs-mkdir xrdfs SERVER mkdir -p -mrwxr-xr-x /data/a/b
record xrdfs-chmod xrdfs SERVER chmod /data/a/b rwxr-x---
record xrdfs-rmdir xrdfs SERVER rmdir /data/a/b
record xrdfs-mv xrdfs SERVER mv /data/new.bin /data/moved.bin
record xrdfs-truncate xrdfs SERVER truncate /data/moved.bin 100
record xrdfs-rm xrdfs SERVER rm /data/moved.bin
record xrdfs-xattr-set xrdfs SERVER xattr /data/small.bin set colour=blue
record xrdfs-xattr-get xrdfs SERVER xattr /data/small.bin get colour
record xrdfs-xattr-list xrdfs SERVER xattr /data/small.bin list
record xrdfs-xattr-del xrdfs SERVER xattr /data/small.bin del colour
record xrdfs-prepare xrdfs SERVER prepare -s -p 1 /data/small.bin
record python-calls /usr/bin/python3 "$work/xrootd-calls.py" SERVER
record raw-calls /usr/bin/python3 "$work/xrootd-raw.py" SERVER

cp "$work"/out/*.txt "$out/"
ls -l "$out"
