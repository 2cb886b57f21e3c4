#!/usr/bin/python3
"""Which virtual functions of c10d's backends does gloo have, and which does this backend have?

    functions.py [--list FILE]
    functions.py --table FILE...     a table with two columns per list: Markdown

The base class is read in PyTorch's header: Backend.hpp, or ProcessGroup.hpp before PyTorch 2. An override is a function
that the class has in the compiled library: libtorch_cpu.so for gloo, the extension for this backend. gloo's header adds
those that are only there. A function of gloo's that this backend lacks must be in LEFT_OUT with its reason, or the script
fails.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys

import ranks

# Functions that gloo overrides and this backend does not: what a caller gets, and why.
RECONFIGURE = "experimental in PyTorch; after the loss of a rank, create a new group of the ranks that are left"
LEFT_OUT = {
    "supportsReconfigure": RECONFIGURE,
    "get_reconfigure_handle": RECONFIGURE,
    "reconfigure": RECONFIGURE,
}
# PyTorch 2.14's names. Its base class forwards each to the older name, which this backend overrides.
OLDER_NAME = {
    "all_gather_single": "_allgather_base",
    "all_gather_single_coalesced": "allgather_into_tensor_coalesced",
    "reduce_scatter_single": "_reduce_scatter_base",
    "reduce_scatter_single_coalesced": "reduce_scatter_tensor_coalesced",
    "all_to_all_single": "alltoall_base",
}
# Not functions that a program calls.
INTERNAL = re.compile(r"^~")


def virtual_functions(header):
    """Returns the names of the virtual functions that a header's class declares, in its order."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", header.read_text(), flags=re.S)
    names = re.findall(r"\bvirtual\s[^;{}()]*?(~?\w+)\s*\(", text)
    return [name for name in dict.fromkeys(names) if not INTERNAL.search(name)]


def members(library, prefix, *options):
    """Returns the names of the functions of a class that a library defines."""
    done = subprocess.run(["nm", "--demangle", "--defined-only", *options, library], capture_output=True, text=True, check=True)
    return set(re.findall(rf" [tTwW] {re.escape(prefix)}::(~?\w+)(?:\[abi:cxx11\])?\(", done.stdout))


def inline_overrides(header, name):
    """Returns the functions that a class overrides in its header. A library does not export those with a body there."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", header.read_text(), flags=re.S)
    begin = re.search(rf"class TORCH_API {name} : public [^{{]*", text)
    depth, own = 0, []  # own: the text that is in the class, but not in a function's body or a nested class
    for c in text[begin.end():]:
        depth += {"{": 1, "}": -1}.get(c, 0)
        if depth == 0:
            break
        if depth == 1:
            own.append(c)
    return set(re.findall(r"(\w+)\s*\((?:[^()]|\([^()]*\))*\)\s*(?:const\s*)?override", "".join(own)))


def ask():
    """Returns (version, [folders of headers], [folders of libraries]) of the installed PyTorch."""
    program = ("import json, torch; from torch.utils.cpp_extension import include_paths, library_paths;"
               "print(json.dumps([torch.__version__, include_paths(), library_paths()]))")
    done = subprocess.run([ranks.PYTHON, "-c", program], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def first(folders, pattern, what):
    found = [path for folder in folders for path in sorted(pathlib.Path(folder).glob(pattern))]
    return found[0] if found else sys.exit(f"functions.py: no {what} in {', '.join(map(str, folders))}")


def compare():
    version, headers, libraries = ask()
    base = "Backend" if int(version.split(".")[0]) >= 2 else "ProcessGroup"
    header = first([*headers, "/usr/include"], f"torch/csrc/distributed/c10d/{base}.hpp", "header of PyTorch's")
    gloo = members(first([*libraries, "/usr/lib/x86_64-linux-gnu"], "libtorch_cpu.so*", "libtorch_cpu.so"),
                   "c10d::ProcessGroupGloo", "--dynamic")
    gloo |= inline_overrides(header.with_name("ProcessGroupGloo.hpp"), "ProcessGroupGloo")
    ours = members(first([ranks.BUILD / "ringsmith_torch"], "_C.*.so", "extension"), "ringsmith::pytorch::Backend")
    rows = []
    for name in virtual_functions(header):
        # A class of the new names has the old ones, and the reverse.
        same = {name, OLDER_NAME.get(name, name), *(new for new, old in OLDER_NAME.items() if old == name)}
        rows.append({"name": name, "gloo": not same.isdisjoint(gloo), "ours": not same.isdisjoint(ours)})
    # If one of the three readers fails, these are missing.
    for name in ("allreduce", "broadcast", "barrier", "recvAnysource", "monitoredBarrier"):
        assert {"name": name, "gloo": True, "ours": True} in rows, f"{name} is not found: {rows}"
    return {"version": version, "base": base, "rows": rows}


def table(lists):
    said = [json.loads(pathlib.Path(path).read_text()) for path in lists]
    print("| function | " + " | ".join(f"{one['version'].split('+')[0]}: gloo | ours" for one in said) + " | note |")
    print("|---|" + "---|---|" * len(said) + "---|")
    names = dict.fromkeys(row["name"] for one in reversed(said) for row in one["rows"] if row["gloo"] or row["ours"])
    same = []
    for name in names:
        cells = []
        for one in said:
            row = next((row for row in one["rows"] if row["name"] == name), None)
            cells += ["", ""] if row is None else ["yes" if row["gloo"] else "no", "yes" if row["ours"] else "no"]
        if set(cells) == {"yes"}:
            same.append(f"`{name}`")
        else:
            print(f"| `{name}` | {' | '.join(cells)} | {LEFT_OUT.get(name, '')} |")
    print(f"\nBoth have, in all versions: {', '.join(same)}.")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", help="a file for the result")
    parser.add_argument("--table", nargs="+", metavar="FILE", help="print a table of these lists")
    args = parser.parse_args()
    if args.table:
        return table(args.table)
    ranks.leave_if_impossible()
    found = compare()
    if args.list:
        pathlib.Path(args.list).write_text(json.dumps(found, indent=1) + "\n")
    lacks = [row["name"] for row in found["rows"] if row["gloo"] and not row["ours"]]
    wrong = [name for name in lacks if name not in LEFT_OUT]
    more = [row["name"] for row in found["rows"] if row["ours"] and not row["gloo"]]
    both = sum(row["gloo"] and row["ours"] for row in found["rows"])
    print(f"PyTorch {found['version']}, {len(found['rows'])} virtual functions of {found['base']}: both have {both}; only here: "
          f"{', '.join(more) or 'none'}; only gloo: {', '.join(lacks) or 'none'}")
    for name in wrong:
        print(f"functions.py: gloo has {name}(), this backend lacks it, and LEFT_OUT has no reason", file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
