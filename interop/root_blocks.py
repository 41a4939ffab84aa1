"""Where uproot finds the blocks (baskets or pages) of each column of a ROOT file.

    python root_blocks.py FILE...    prints one JSON object: by file, by tree, a list of [name, [[first entry, offset, length], ...]]
"""

import json
import sys

import uproot
from uproot.behaviors.RNTuple import HasFields
from uproot.behaviors.TTree import TTree

PAGE_CHECKSUM_BYTES = 8


def tree_columns(tree) -> list:
    """Returns the baskets of each branch that are in the file of the tree."""
    columns = []
    for name, branch in tree.iteritems(recursive=True, full_paths=True):
        baskets = zip(*(branch.member(member) for member in ("fBasketEntry", "fBasketSeek", "fBasketBytes")), strict=True)
        known = list(baskets)[: branch.member("fWriteBasket") + 1]
        is_here = not branch.member("fFileName", none_if_missing=True)
        blocks = sorted([int(entry), int(seek), int(size)] for entry, seek, size in known if is_here and seek and size)
        columns.append([name, blocks])
    return columns


def field_name(ntuple, index: int) -> str:
    """Returns the name of a field after those of the fields that it is in."""
    records, names = ntuple.field_records, []
    while True:
        names.append(records[index].field_name)
        if records[index].parent_field_id == index:
            return ".".join(reversed(names))
        index = records[index].parent_field_id


def ntuple_columns(ntuple) -> list:
    """Returns the pages of each field, with their checksums."""
    columns = [[field_name(ntuple, index), []] for index in range(len(ntuple.field_records))]
    for summary, cluster in zip(ntuple.cluster_summaries, ntuple.page_link_list, strict=True):
        for record, pages in zip(ntuple.column_records, cluster, strict=False):
            for page in pages.pages:
                length = page.locator.num_bytes + (PAGE_CHECKSUM_BYTES if page.has_checksum else 0)
                columns[record.field_id][1].append([summary.num_first_entry, page.locator.offset, length])
    return [[name, sorted(blocks)] for name, blocks in columns]


def trees(path: str) -> dict:
    """Returns the columns of each tree; of those with the same name, of the last."""
    found = {}
    with uproot.open(path) as file:
        for name in file.keys(recursive=True, cycle=False):
            try:
                item = file[name]
            except (NotImplementedError, ValueError, KeyError, uproot.deserialization.DeserializationError):
                continue
            if isinstance(item, TTree):
                found[name] = tree_columns(item)
            elif isinstance(item, HasFields):
                found[name] = ntuple_columns(item)
    return found


if __name__ == "__main__":
    print(json.dumps({path: trees(path) for path in sys.argv[1:]}))
