#!/usr/bin/env python3
"""nvcc_test.py NVCC: tests the translation of sources by kernels/vgpu/nvcc, and its command line. NVCC is the build's
wrapper."""
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TRANSLATOR = HERE.parent.parent / "kernels/vgpu/nvcc"
failed = 0

# name, source, texts that the translation must contain, texts that it must not contain
CASES = [
    ("a launch", "__global__ void k(int);\nvoid f() { k<<<2, 3>>>(1); }",
     ['::vgpu::Configured(2, 3).run("k"', "k(vgpu_values...); }, 1);"], ["<<<"]),
    ("a launch without arguments", "void f() { k<<<1, 1>>>(); }", ["k(vgpu_values...); });"], ["<<<"]),
    ("template arguments, a namespace, brackets within the brackets",
     "void f() { n::k<A<int>, 3><<<dim3(g(1), 2), (b), s[1], st>>>(x, h(y, z)); }",
     ["::vgpu::Configured(dim3(g(1), 2), (b), s[1], st)", "n::k<A<int>, 3>(vgpu_values...); }, x, h(y, z));"], ["<<<"]),
    ("over several lines, which stay as many", "void f() {\n  k<<<1,\n      2>>>(a,\n           b);\n}", ["Configured(1,\n      2)"], ["<<<"]),
    ("in a macro, between the brackets of the launch and its arguments",
     "__global__ void k(int);\n#define GO(x) \\\n  k<<<1, \\\n      2>>> \\\n    (x); \\\n  q();\nvoid f() { GO(1) }",
     ['::vgpu::Configured(1, \\\n      2) \\\n    .run("k"', "}, x); \\\n  q();\nvoid f() { GO(1) }"], ["<<<"]),
    ("with the kernel's name on a line of its own", "#define GO n::k<int> \\\n  <<<1, 2>>>(1)",
     ['::vgpu::Configured(1, 2) \\\n  .run("n::k<int>"'], ["<<<"]),
    ("a comment and a string stay", 'void f() { g("k<<<1,1>>>(x)"); } // k<<<1,1>>>(x)',
     ['g("k<<<1,1>>>(x)")', "// k<<<1,1>>>(x)"], ["vgpu"]),
    ("shifts stay", "int f(int a) { return a << 3 >> 1; }", ["a << 3 >> 1"], ["vgpu"]),
    ("an address of a template", "template <class T> __global__ void __launch_bounds__(512, 1) k(T* x);\n"
     "const void* f() { return (void const*)&k<unsigned>; }", ["return ::vgpu::kernel_address(&k<unsigned>);"], []),
    ("an address as void*", "__global__ void k();\nvoid* f() { return (void*)k; }",
     ["return const_cast<void*>(::vgpu::kernel_address(&k));"], []),
    ("an address by reinterpret_cast", "__global__ void k();\nauto f() { return reinterpret_cast<const void*>(&k); }",
     ["reinterpret_cast<const void*>(::vgpu::kernel_address(&k))"], []),
    ("another function's address stays", "__global__ void k();\nvoid g();\nauto f() { return (const void*)&g; }", ["(const void*)&g"],
     ["kernel_address"]),
    ("in a macro over several lines", "__global__ void k(int);\n#define GO(x) \\\n  p = (const void*)&k; \\\n  q(x);",
     ["p = ::vgpu::kernel_address(&k); \\"], []),
    ("dynamic shared memory", "__global__ void k() { extern __shared__ __align__(16) unsigned char t[]; }",
     ["auto* const t = static_cast<unsigned char*>(::vgpu::current_block->dynamic_shared);"], ["extern"]),
    ("dynamic shared memory of rows", "__global__ void k() { extern __shared__ half t[][A + B]; }",
     ["auto* const t = static_cast<half(*)[A + B]>(::vgpu::current_block->dynamic_shared);"], ["extern"]),
    ("the type before __shared__", "__global__ void k() { extern double __shared__ t[]; }", ["static_cast<double*>("], ["extern"]),
    ("an alignment moves before __shared__", "__global__ void k() { __shared__ alignas(alignof(T)) T t[2]; }",
     ["alignas(alignof(T)) __shared__ T t[2];"], []),
    ("members with the names of built-in variables", "void f() { p.gridDim = q->blockDim; r = gridDim; }",
     ["p.gridDim_ = q->blockDim_; r = gridDim;"], []),
    ("comparisons of __CUDA_ARCH__", "#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 700\n#endif\n#ifdef __CUDA_ARCH__\n#endif",
     ["#if !defined(__CUDA_ARCH__) || 800 >= 700\n", "#ifdef __CUDA_ARCH__\n"], []),
    ("an instruction with a result", 'void f() { asm("bfind.u32 %0, %1;" : "=r"(r) : "r"(x + 1)); asm("mov.u32 %0, %%laneid;" : "=r"(i)); }',
     ["(r) = ((x + 1) == 0", "(i) = vgpu::lane();"], ["asm"]),
    ("a reduction in PTX", 'void f() { asm volatile("red.global.add.u64 [%0],%1;" :: "l"(&r->p), "l"(v) : "memory"); }',
     ["(void)atomicAdd(reinterpret_cast<unsigned long long*>(&r->p), static_cast<unsigned long long>(v));"], ["asm"]),
    ("other PTX does not compile", 'void f() { asm volatile("bar.sync 0;"); }', ["this_inline_ptx_has_no_translation"], []),
]


def check(good, name, seen=""):
    global failed
    failed += 0 if good else 1
    print(f"{'ok' if good else 'FAILED'}: {name}{'' if good else chr(10) + seen[:3000]}")


def run(command, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=240, **options)
    return done.returncode, done.stdout + done.stderr


def must(code, said, name):
    check(code == 0, name, said)
    if code != 0:
        sys.exit(1)  # the tests below need it


HOST = """#include <nccl.h>
#include <stdio.h>
int main(void) {
  int version = 0;
  void* memory = NULL;
  cudaStream_t stream = NULL;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  if (ncclGetVersion(&version) != ncclSuccess || cudaMalloc(&memory, 64) != cudaSuccess ||
      cudaStreamCreate(&stream) != cudaSuccess || cudaMemsetAsync(memory, 0, 64, stream) != cudaSuccess ||
      cudaStreamWaitEvent(stream, NULL, 0) == cudaSuccess || cudaStreamDestroy(stream) != cudaSuccess ||
      cudaFree(memory) != cudaSuccess)
    return 1;
  printf("%d %u\\n", version == NCCL_VERSION_CODE, config.magic);
  return 0;
}
"""


# Included by foreign.cu: the translator follows includes by quotes.
INCLUDED = """#pragma once
__global__ void add_one_number(int* x, int n) { *x += n; }

inline void add_in_header(int* x, int n, cudaStream_t stream) {
  add_one_number<<<1, 1, 0, stream>>>(x, n);
}
"""


def host_programs(folder, nvcc):
    """C, and C++ before C++20, get the runtime's calls from the emulator's headers."""
    nccl = pathlib.Path(nvcc).resolve().parent.parent.parent
    for compiler, suffix, standard in [("gcc", "c", s) for s in ("c99", "c11")] + [("g++", "cpp", s) for s in ("c++14", "c++17", "c++20")]:
        source, program = folder / f"host.{suffix}", folder / "host"
        source.write_text(HOST)
        code, said = run([compiler, f"-std={standard}", "-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{nccl}/include",
                          f"-I{nccl}/cuda/include", source, "-o", program, f"-L{nccl}/lib", "-lnccl",
                          f"-L{nccl}/cuda/lib64", "-lcudart", f"-Wl,-rpath,{nccl}/lib"])
        code, said = run([program]) if code == 0 else (code, said)
        check(code == 0 and said == f"1 {0xcafebeef}\n", f"a program in {standard} with nccl.h and cuda_runtime.h", said)


def translations(folder):
    for name, source, there, gone in CASES:
        path = pathlib.Path(folder, "case.cu")
        path.write_text(source)
        code, out = run([TRANSLATOR, "--vgpu-translate", path])
        check(code == 0 and all(t in out for t in there) and not any(g in out for g in gone) and
              out.count("\n") == source.count("\n"), name, out)
    path.write_text("void f() { k<<<1, 1; }")
    code, out = run([TRANSLATOR, "--vgpu-translate", path])
    check(code == 1 and "'<<<' without '>>>'" in out, "a launch without its end is an error that names the file", out)


def programs(nvcc, folder):
    flags = ["-ccbin", "g++", "-gencode=arch=compute_80,code=sm_80", "-gencode", "arch=compute_90,code=sm_90", "-std=c++11", "-O2",
             "-g", "-lineinfo", "-Xcompiler", "-Wall,-Wextra,-Werror", "-Xptxas", "-v"]
    program, out = pathlib.Path(folder, "legacy"), pathlib.Path(folder, "legacy.o")
    code, said = run([nvcc, *flags, "-c", HERE / "legacy.cu", "-o", out])
    must(code, said, "nvcc's options are understood")
    code, said = run([nvcc, *flags, "-o", program, out, "-lcudart", "-lrt"])
    must(code, said, "objects are linked")
    for seed in (1, 2, 3):
        code, said = run([program], env={"VGPU_LEGACY_STREAM": "1", "VGPU_SEED": str(seed), "PATH": "/usr/bin:/bin"})
        check(code == 0 and "all as promised" in said, f"legacy.cu, seed {seed}", said)
    code, said = run([program], env={"PATH": "/usr/bin:/bin"})
    check(code == 0 and "all as promised" in said, "such programs have the default stream", said)
    code, said = run([program], env={"VGPU_LEGACY_STREAM": "0", "PATH": "/usr/bin:/bin"})
    check(code == 1 and "line" in said, "with VGPU_LEGACY_STREAM=0 the default stream is refused", said)
    foreign, source = pathlib.Path(folder, "foreign"), pathlib.Path(folder, "foreign.cu")
    pathlib.Path(folder, "foreign.cuh").write_text(INCLUDED)
    source.write_text('#include "foreign.cuh"\n' + (HERE / "foreign.cu").read_text())
    code, said = run([nvcc, *flags, "-o", foreign, source])
    must(code, said, "foreign.cu compiles, with the file that it includes")
    code, said = run([foreign], env={"PATH": "/usr/bin:/bin"})
    check(code == 0 and "all as promised" in said, "foreign.cu: cooperative groups, callbacks, graphs", said)
    for name, subject in (("foreign_device", "functions, groups, copies, memory"), ("foreign_graph", "nodes, captures of several streams")):
        code, said = run([nvcc, *flags, "-O1", "-o", foreign, HERE / f"{name}.cu"])
        must(code, said, f"{name}.cu compiles")
        for seed in (1, 2):
            code, said = run([foreign], env={"VGPU_SEED": str(seed), "PATH": "/usr/bin:/bin"})
            check(code == 0 and "all as promised" in said, f"{name}.cu, seed {seed}: {subject}", said)
    wrong = pathlib.Path(folder, "wrong.cu")
    wrong.write_text('#include <cuda_runtime.h>\n\n__global__ void k() { asm volatile("bar.sync 0;"); }\n')
    code, said = run([nvcc, "-c", wrong, "-o", out])
    check(code != 0 and "this_inline_ptx_has_no_translation" in said and "wrong.cu:3" in said, "the error names PTX, file and line", said)
    mpi = pathlib.Path(folder, "mpi.cu")
    mpi.write_text('#include <mpi.h>\nint main(int c, char** v) { return MPI_Init(&c, &v) + MPI_Finalize(); }\n')
    code, said = run(["mpicc", "-showme:incdirs"])
    include = [f"-I{path}" for path in said.split()] if code == 0 else []
    code, said = run([nvcc, "-O3", "-g", *include, "-o", program, mpi, "-lmpi"])
    check(code == 0, "a program with mpi.h links with -lmpi alone, as nccl-tests does", said)
    code, said = run([nvcc, "-c", "no-such-file.cu"])
    check(code != 0 and "no-such-file.cu" in said, "a file that is not there is named", said)
    code, said = run([nvcc, "--version"])
    check(code == 0 and "release 12.0," in said, "--version, as makefiles read it", said)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        translations(folder)
        host_programs(pathlib.Path(folder), sys.argv[1])
        programs(sys.argv[1], folder)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
