#!/usr/bin/env python3
"""includes.py [--fix] [--root FOLDER]: checks that each source includes the standard headers that it uses.

Almost every release of a standard library stops including some of its headers in others: then a file that compiled for
years no longer does (std::uint32_t without <cstdint>, on g++ 13). No installed compiler shows it beforehand. So each use
of a name in USES needs its header: in the file, in a header of ours that it includes, or in one that the standard or
every library guarantees (GIVES). --fix adds the missing lines. Names that a version of Catch2 lacks (MOVED) are found,
too. Exit status 1: something is missing.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def of(words, prefix="std::"):
    return prefix + r"(?:" + "|".join(words.split()) + r")\b"


RANGES = "sort find find_if count count_if copy fill transform all_of any_of none_of reverse max min max_element min_element equal " \
         "is_sorted replace unique remove lower_bound stable_sort for_each rotate"
USES = {
    "algorithm": of("sort stable_sort find find_if count_if count max_element min_element minmax_element copy copy_n copy_if fill "
                    "fill_n transform all_of any_of none_of reverse rotate equal unique remove_if replace lower_bound upper_bound "
                    "nth_element is_sorted clamp generate shuffle min max for_each mismatch search binary_search set_difference "
                    "next_permutation partition " + " ".join("ranges::" + w for w in RANGES.split())),
    "array": of("array to_array"), "atomic": of("atomic atomic_\\w+ memory_order\\w*"), "barrier": of("barrier"),
    "bit": of("bit_cast popcount bit_width has_single_bit bit_ceil bit_floor countr_zero countl_zero endian"),
    "cctype": of("isspace isdigit isalpha tolower toupper isalnum isprint isxdigit"), "charconv": of("from_chars to_chars"),
    "chrono": of("chrono"),
    "cmath": of("sqrt exp log log2 pow fabs isnan isfinite isinf floor ceil round lround llround tanh erf sin cos fma nextafter ldexp "
                "frexp fmod hypot signbit trunc nearbyint rint"),
    "compare": of("strong_ordering weak_ordering partial_ordering"),
    "concepts": of("same_as integral floating_point convertible_to invocable derived_from constructible_from"),
    "condition_variable": of("condition_variable"), "cstddef": of("size_t byte nullptr_t ptrdiff_t max_align_t"),
    "cstdint": r"\bstd::u?int(?:8|16|32|64|ptr)_t\b",
    "cstdio": of("printf fprintf fopen fclose fread fwrite fputs fflush snprintf FILE puts rename perror fgets sscanf"),
    "cstdlib": of("getenv exit abort _Exit strtol strtoll strtoull strtod malloc free aligned_alloc system atoi realpath"),
    "cstring": of("memcpy memset memcmp memmove strlen strcmp strerror strncmp strchr strstr"), "deque": of("deque"),
    "fmt/ranges.h": r"\bfmt::join\b",  # since fmt 11, no other header has it
    "exception": of("exception_ptr current_exception rethrow_exception make_exception_ptr uncaught_exceptions exception terminate"),
    "filesystem": of("filesystem"), "fstream": r"std::[io]?fstream\b",
    "functional": of("function bind hash plus multiplies ref cref invoke"),
    "future": of("future promise async packaged_task"), "iomanip": of("setw setprecision setfill"),
    "iostream": of("cout cerr cin clog"),
    "iterator": of("back_inserter ssize distance next prev advance inserter istreambuf_iterator istream_iterator make_move_iterator"),
    "latch": of("latch"), "limits": of("numeric_limits"), "list": of("list"), "map": of("map multimap"),
    "memory": of("unique_ptr shared_ptr weak_ptr make_unique make_shared enable_shared_from_this addressof"),
    "mutex": of("mutex lock_guard unique_lock scoped_lock once_flag call_once recursive_mutex"),
    "new": of("bad_alloc align_val_t launder nothrow"),
    "numeric": of("iota accumulate gcd lcm inner_product partial_sum reduce exclusive_scan inclusive_scan midpoint"),
    "optional": of("optional nullopt"), "queue": of("queue priority_queue"),
    "random": of("mt19937 mt19937_64 uniform_\\w+_distribution normal_distribution random_device bernoulli_distribution"),
    "ranges": of("views"), "regex": of("regex smatch regex_\\w+ sregex_iterator"), "semaphore": of("counting_semaphore binary_semaphore"),
    "set": of("set multiset"), "shared_mutex": of("shared_mutex shared_lock"), "source_location": of("source_location"),
    "span": of("span as_bytes as_writable_bytes dynamic_extent"), "sstream": r"std::[io]?stringstream\b",
    "stdexcept": of("runtime_error invalid_argument logic_error out_of_range length_error"),
    "stop_token": of("stop_token stop_source stop_callback"),
    "string": of("string to_string stoi stol stoul stoull stod stof getline"), "string_view": of("string_view"),
    "system_error": of("error_code system_error errc generic_category system_category"),
    "thread": of("thread jthread this_thread"), "tuple": of("tuple tie make_tuple apply"),
    "type_traits": of("enable_if_t conditional_t decay_t remove_cvref_t is_\\w+_v underlying_type_t invoke_result_t make_unsigned_t"),
    "unordered_map": of("unordered_map"), "unordered_set": of("unordered_set"),
    "utility": of("move swap exchange pair make_pair forward index_sequence make_index_sequence cmp_less declval as_const"),
    "variant": of("variant visit monostate get_if holds_alternative"), "vector": of("vector"),
}
# Names that only some versions of a library have, and replacements that all of them have.
MOVED = {
    r"\bCatch::(?:Contains|Equals|StartsWith|EndsWith|Matches|WithinAbs|WithinRel)\b":
        "Catch2 3 has it in Catch::Matchers: take ContainsSubstring, or add to tests/support/catch.hpp",
    r"\bCatch::Matchers::Contains\b": "another thing in Catch2 3: take ContainsSubstring (tests/support/catch.hpp)",
    r"#\s*include <catch2/catch\.hpp>": "Catch2 3 has no such file: include tests/support/catch.hpp",
}
ADAPTS = "tests/support/catch"  # catch.hpp and catch2_main.cpp, which hide the versions from all others
CONTAINERS = "array deque list map queue set span string string_view unordered_map unordered_set vector"
GIVES = {
    "cmath": "math.h", "compare": CONTAINERS + " optional utility tuple memory chrono variant thread filesystem system_error",
    "concepts": "iterator ranges", "cstddef": "stddef.h cstdlib cstring cstdio memory " + CONTAINERS, "cstdint": "stdint.h cinttypes",
    "cstdio": "stdio.h", "cstdlib": "stdlib.h", "cstring": "string.h", "exception": "new stdexcept typeinfo",
    "chrono": "condition_variable future mutex thread", "iterator": CONTAINERS + " regex", "mutex": "condition_variable shared_mutex",
    "new": "memory", "stop_token": "condition_variable thread", "string": "filesystem fstream iomanip iostream regex sstream",
    "string_view": "filesystem string", "system_error": "charconv filesystem mutex thread", "tuple": "functional map memory",
    "type_traits": CONTAINERS + " algorithm atomic bit chrono concepts functional limits memory mutex optional ranges thread tuple "
                                "utility variant",
    "utility": CONTAINERS + " algorithm functional future memory mutex optional thread tuple variant",
}


class Sources:
    def __init__(self, root):
        self.root = root
        names = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.hpp", "*.cpp", "*.cu", "*.cuh", "*.h"],
                               cwd=root, capture_output=True, text=True)
        if names.returncode:
            print("includes: NOT RUN: this is no git checkout, and git knows which files are ours")
            sys.exit(77)
        self.code, self.standard, self.own = {}, {}, {}
        for name in names.stdout.split():
            if name.startswith("tests/bench/peers/") or not (root / name).is_file():
                continue
            text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", (root / name).read_text(), flags=re.S)
            self.standard[name] = set(re.findall(r"^\s*#\s*include\s+<([^>]+)>", text, re.M))
            self.own[name] = re.findall(r'^\s*#\s*include\s+"([^"]+)"', text, re.M)
            self.code[name] = re.sub(r'R"\w*\((?:.|\n)*?\)\w*"|"(?:\\.|[^"\\\n])*"', '""', text)

    def reached(self, name, seen):
        """Returns the standard headers that a file includes, directly or through headers of ours."""
        if name in seen:
            return set()
        seen.add(name)
        found = set(self.standard[name])
        for own in self.own[name]:
            beside = str(pathlib.PurePath(name).parent / own)
            other = own if own in self.code else beside if beside in self.code else None
            if other:
                found |= self.reached(other, seen)
        return found

    def missing(self, name):
        there = self.reached(name, set())
        return [header for header, use in USES.items()
                if header not in there and not there & set(GIVES.get(header, "").split()) and re.search(use, self.code[name])]

    def add(self, name, headers):
        """Adds the lines next to an include of the same kind; clang-format sorts them."""
        lines = (self.root / name).read_text().split("\n")
        new = [f"#include <{header}>" for header in headers]
        at = next((n for n, line in enumerate(lines) if re.fullmatch(r"#include <[a-z_/.]+>", line)), None)
        if at is None:
            at = next(n for n, line in enumerate(lines) if re.match(r"#(include|pragma once)", line))
            # A file's own header stays first. In a lab's driver, the student's file does.
            first = lines[at]
            if first.startswith("#pragma") or pathlib.PurePath(name).stem in first or re.match("#include [A-Z]", first):
                at += 1
                new.insert(0, "")
            else:
                new.append("")
        lines[at:at] = new
        (self.root / name).write_text("\n".join(lines))
        subprocess.run(["clang-format", "-i", name], cwd=self.root, check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fix", action="store_true")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    args = parser.parse_args()
    if args.fix and not shutil.which("clang-format"):
        parser.error("--fix needs clang-format: apt install clang-format")
    sources = Sources(args.root)
    # Headers come first, because the files that include them then need not include the same headers.
    order = sorted(sources.code, key=lambda n: not n.endswith((".hpp", ".cuh", ".h")))
    found = moved = 0
    for name in order:
        headers = sources.missing(name)
        found += len(headers)
        if headers and args.fix:
            sources.add(name, headers)
            sources.standard[name] |= set(headers)
        for use, instead in MOVED.items():
            use = None if name.startswith(ADAPTS) else re.search(use, sources.code[name])
            if use:
                moved += 1
                print(f"{name}: {use[0]}: {instead}")
        for header in headers:
            print(f"{name}: uses {re.search(USES[header], sources.code[name])[0]}: "
                  f"#include <{header}>{' (added)' if args.fix else ''}")
    if not found + moved:
        print(f"includes: {len(sources.code)} files include the standard headers that they use")
    sys.exit(1 if moved or found and not args.fix else 0)


if __name__ == "__main__":
    main()
