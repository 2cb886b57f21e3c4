#!/usr/bin/env python3
"""planted.py BUILD [--only WORD] [--part I/N] | --match: plants mistakes in copies of kernels, and of all_reduce on
several nodes; the tests must find each of them.

A mistake is a replacement in one source, or in a header that the source named in USERS then includes. The copy is
compiled like the source, linked before the libraries into the tests, and the named cases run: they must fail, or the
emulator must stop them. A mistake whose test does not end counts as not found. The unchanged source is tested first in
the same way, and must pass. --match only checks that the text of every mistake occurs once in its source.
"""
import argparse
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
PIPELINED, EMBEDDING = "kernels/cuda/matmul_pipelined.cu", "kernels/cuda/embedding.cu"
LIBRARY = "kernels/cuda/matmul_cublaslt.cu"
WGMMA, HOPPER = "kernels/cuda/matmul_wgmma.cu", "kernels/cuda/wgmma.cuh"
ATTENTION = "kernels/cuda/attention_tensor.cu"
OPTIM, LOSS, NORM = "kernels/cuda/optim.cu", "kernels/cuda/loss.cu", "kernels/cuda/layernorm.cu"
ELEMENTWISE, COPY = "kernels/cuda/elementwise.cu", "kernels/cuda/copy.cu"
TABLE, PACK = "kernels/cuda/table.cuh", "kernels/cuda/pack.cuh"
FIRST_BAD = "kernels/cuda/first_bad.cuh"
NODES = "runtime/comm/device/nodes_backend.cpp"
CASES = {PIPELINED: "[pipelined]", WGMMA: "[wgmma]", LIBRARY: "[cublaslt]", ATTENTION: "[attention_tensor]",
         EMBEDDING: "*embedding*,*one row*,*outside the table*,*bad indices*", OPTIM: "[optim]",
         LOSS: "[cross_entropy],[classifier]", NORM: "[add_layer_norm],[half]", ELEMENTWISE: "[half]", COPY: "[half]",
         NODES: "[nodes]"}
PROGRAMS = {NODES: "tests_comm_cuda"}  # of the others: tests_kernels_cuda
USERS = {TABLE: OPTIM, PACK: ELEMENTWISE, HOPPER: WGMMA, FIRST_BAD: EMBEDDING}

# Description, source, then the text to replace and its replacement.
PLANTED = [
    ("no commit: copies of two slabs are one group", PIPELINED, "      commit_copies();  // even", "      // even"),
    ("no wait for a slab", PIPELINED, "      wait_for_copies<stages - 2>();\n", ""),
    ("a wait for one slab less", PIPELINED, "wait_for_copies<stages - 2>", "wait_for_copies<stages - 1>"),
    ("no barrier between the wait and the product", PIPELINED,
     "      wait_for_copies<stages - 2>();\n      __syncthreads();\n", "      wait_for_copies<stages - 2>();\n"),
    ("the barrier stands before the wait", PIPELINED, "      wait_for_copies<stages - 2>();\n      __syncthreads();\n",
     "      __syncthreads();\n      wait_for_copies<stages - 2>();\n"),
    ("copies begin before the barrier: the stage is still read", PIPELINED,
     "      __syncthreads();\n      fetch(step + stages - 1, previous);\n", "      fetch(step + stages - 1, previous);\n      __syncthreads();\n"),
    ("no barrier between two matrices of a batch", PIPELINED, "    // other warps may still be reading.\n    __syncthreads();\n", "\n"),
    ("the wrong stage is multiplied", PIPELINED, "bf16* stage = slabs; ", "bf16* stage = slabs + kStage; "),
    ("a slab lands in the stage that is multiplied", PIPELINED, "fetch(step + stages - 1, previous)", "fetch(step + stages - 1, stage)"),
    ("one slab fewer before the loop", PIPELINED, "s < stages - 1; ++s", "s < stages - 2; ++s"),
    ("half a slab is multiplied", PIPELINED, "each_constant<kDepth / 16>", "each_constant<kDepth / 32>"),
    ("A's fragments: the matrices of rows and of k change places", PIPELINED, "SlabA::lane_place(false)", "SlabA::lane_place(true)"),
    ("B's fragments: the matrices of columns and of k change places", PIPELINED, "SlabB::lane_place(true)", "SlabB::lane_place(false)"),
    ("a slab of [k][line] is not transposed", PIPELINED, "load_matrices_transposed<kBytes>(", "load_matrices<kBytes>("),
    ("B's two fragments change places", PIPELINED, "{two[j % 2 * 2], two[j % 2 * 2 + 1]}", "{two[2 - j % 2 * 2], two[3 - j % 2 * 2]}"),
    ("the last slab counts as whole", PIPELINED, "operand_.depth / kDepth : 0", "ceil_div(operand_.depth, kDepth) : 0"),
    ("lines that end within a pack count as whole", PIPELINED, "operand_.packs && lines ?", "operand_.packs ?"),
    ("without packs, slabs count as whole", PIPELINED, "operand_.packs && lines ?", "lines ?"),
    ("B's slabs are whole if A's are", PIPELINED, "smaller(a.whole(), b.whole())", "a.whole()"),
    ("A's slabs are whole if B's are", PIPELINED, "smaller(a.whole(), b.whole())", "b.whole()"),
    ("lines beyond the last are replaced by a part of a pack", PIPELINED, "operand.lines - (along_k ? 1 : kCopy)", "operand.lines - 1"),
    ("an address advances by a step along k, whatever the order", PIPELINED, "along_k ? kDepth : kDepth * operand_.k_stride", "kDepth"),
    ("an address advances by a stride too much", PIPELINED, "along_k ? kDepth : kDepth * operand_.k_stride", "kDepth * operand_.k_stride + (along_k ? 0 : operand_.k_stride)"),
    ("copies read beyond the last k", PIPELINED, "count * static_cast<int>(sizeof(bf16))", "(count > 0 ? 16 : 0)"),
    ("what lies beyond an operand is not zero", PIPELINED, "          to[q].bits = 0;\n", ""),
    ("a misaligned operand goes by packs", PIPELINED, "aligned_for(lines.data, kCopy) && ", ""),
    ("rows that packs do not fit go by packs", PIPELINED, "other % kCopy == 0 &&\n              ", ""),
    ("matrices of a batch that packs do not fit go by packs", PIPELINED, "batch_stride % kCopy == 0}", "true}"),
    ("rows of C's fragments", PIPELINED, "lane / 4 + h * 8", "lane / 4 * 2 + h"),
    ("columns of C's fragments", PIPELINED, "lane % 4 * 2 + q;", "lane % 4 + q * 4;"),
    ("what C held is not added", PIPELINED, "static_cast<float>(to) + sum : sum", "sum : sum"),
    ("a bias by row", PIPELINED, "job.bias[c]", "job.bias[r % job.c.cols]"),
    ("warps skip the last rows of C", PIPELINED, "row + warp_row < job.c.rows", "row + warp_row + 1 < job.c.rows"),
    ("no fence after the barriers' initialisation", WGMMA, "    fence_async_proxy();\n", ""),
    ("a thread stores into a stage, and no fence publishes it", WGMMA, "      fence_multiply();\n",
     "      if (thread == kWarpgroup) const_cast<bf16*>(a)->bits ^= 1;\n      fence_multiply();\n"),
    ("consumers wait for the other parity", WGMMA, "wait(full + turn.stage, turn.parity);", "wait(full + turn.stage, turn.parity ^ 1);"),
    ("the producer waits for the other parity", WGMMA, "turn.parity ^ 1);  // at first", "turn.parity);  // at first"),
    ("the parity never changes", WGMMA, "    parity ^= 1;\n", ""),
    ("a stage is empty before its products have been waited for", WGMMA, "      wait_multiply<1>();\n", ""),
    ("a wait for one group less", WGMMA, "wait_multiply<1>", "wait_multiply<2>"),
    ("no commit of products", WGMMA, "      commit_multiply();\n", ""),
    ("sums are stored before they are computed", WGMMA, "    finish_multiply(sums);\n", ""),
    ("no fence before products", WGMMA, "      fence_multiply();\n", ""),
    ("fewer bytes are announced", WGMMA, "expect_bytes(arrived, kStage *", "expect_bytes(arrived, kSlabB *"),
    ("more bytes are announced", WGMMA, "expect_bytes(arrived, kStage *", "expect_bytes(arrived, (kStage + 8) *"),
    ("all threads arrive", WGMMA, "if (thread % kWarpgroup == 0) arrive(", "arrive("),
    ("one consumer's arrival is enough", WGMMA, "init_barrier(empty + s, 2)", "init_barrier(empty + s, 1)"),
    ("the stage in use is declared empty", WGMMA, "if (step > 0) release(previous)", "if (step > 0) release(turn.stage)"),
    ("the last stage of a tile is never empty", WGMMA, "    finish_multiply(sums);\n    release(previous);\n", "    finish_multiply(sums);\n"),
    ("a wrong distance of 8 lines", WGMMA, "kGroupBytes = 8 * kRowBytes", "kGroupBytes = 4 * kRowBytes"),
    ("a wrong distance of 64 lines", WGMMA, "kBoxSize * static_cast<int>(sizeof(bf16)), kGroupBytes", "kGroupBytes, kGroupBytes"),
    ("a wrong distance of 16 of k", WGMMA, "matrix(slab + k, 0,", "matrix(slab + 2 * k, 0,"),
    ("another swizzle", HOPPER, "kSwizzle128 = 1", "kSwizzle128 = 2"),
    ("storage orders of A and B change places", WGMMA, "multiply_async<!a_along_k, !b_along_k>", "multiply_async<!b_along_k, !a_along_k>"),
    ("sums of the tile before are added to", WGMMA, "step + k > 0", "step + k >= 0"),
    ("both consumers multiply the same rows", WGMMA, " + consumer * kBoxSize", ""),
    ("the last slab is left out if it is not whole", WGMMA, "static_cast<int>(ceil_div(job.depth, kDepth))", "static_cast<int>(job.depth / kDepth)"),
    ("one matrix of A for the whole batch", WGMMA, "job.a_batched ? static_cast<int>(tile.batch) : 0", "0"),
    ("the last group has as many rows as the others", WGMMA, "in_group % rows", "in_group % kTogether"),
    ("no barrier of the warp before it reads staged rows", WGMMA, "    __syncwarp();\n    if (!job.packs", "    if (!job.packs"),
    ("no barrier of the warp before it stages more rows", WGMMA, "    __syncwarp();  // the chunk before has been read\n", ""),
    ("columns behind the last are stored by packs", WGMMA, "p.c.row_stride % kUnit == 0 && p.c.cols % kUnit == 0", "p.c.row_stride % kUnit == 0"),
    ("a tensor map for a misaligned matrix", WGMMA, " &&\n         aligned_for(m.data, kUnit);", ";"),
    ("a tensor map for rows that are not 16 bytes apart", WGMMA, "         other % kUnit == 0 && ", "         "),
    ("a bias by row", WGMMA, "job.bias[at]", "job.bias[0]"),
    ("cuBLASLt may round the parts of a sum", LIBRARY,
     "    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,\n        static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));\n", ""),
    ("no algorithm counts as one", LIBRARY, " || (status == CUBLAS_STATUS_SUCCESS && found == 0))", ")"),
    ("an algorithm that failed counts as one", LIBRARY, "    if (result.state != CUBLAS_STATUS_SUCCESS) return std::nullopt;\n", ""),
    ("a heuristic that supports nothing is an error", LIBRARY, "status == CUBLAS_STATUS_NOT_SUPPORTED || (", "("),
    ("a product that is not supported is an error", LIBRARY, "    if (status == CUBLAS_STATUS_NOT_SUPPORTED) {\n      known", "    if (false) {\n      known"),
    ("a refused algorithm is tried again", LIBRARY, "      known->second.reset();\n", ""),
    ("a batch is aligned if its first matrix is", LIBRARY, "return apart ? alignment_of", "return true ? alignment_of"),
    ("operands are not exchanged", LIBRARY, "multiply(b, a, c, p, gelu)", "multiply(a, b, c, p, gelu)"),
    ("sums of rows are a bias", LIBRARY, "CUBLASLT_EPILOGUE_BGRADB, p.row_sums", "CUBLASLT_EPILOGUE_BIAS, p.row_sums"),
    ("sums of rows are left out where the library fails", LIBRARY, "    column_sum<T>(p.a.t(), {p.row_sums, static_cast<std::size_t>(p.a.rows)}, Store::replace);\n", ""),
    ("GELU's slope is left out", LIBRARY, "{CUBLASLT_EPILOGUE_DGELU, nullptr, gelu.slope_at}", "{}"),
    ("GELU is left out", LIBRARY, "{CUBLASLT_EPILOGUE_GELU_AUX_BIAS, p.bias, gelu.of}", "{CUBLASLT_EPILOGUE_BIAS, p.bias}"),
    ("GELU without a bias", LIBRARY, "{CUBLASLT_EPILOGUE_GELU_AUX_BIAS, p.bias, gelu.of}", "{CUBLASLT_EPILOGUE_GELU_AUX_BIAS, nullptr, gelu.of}"),
    ("GELU's arguments have rows of another length", LIBRARY, "CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, result.ld)", "CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, result.ld + 8)"),
    ("GELU's arguments may be misaligned", LIBRARY, " &&\n                    aligned_for(arguments, kPack);", ";"),
    ("GELU of rows that the library does not support", LIBRARY, "p.c.cols % kPack == 0", "p.c.cols > 0"),
    ("nothing is added", LIBRARY, "beta = p.store == Store::add ? 1 : 0", "beta = 0"),
    ("digits are counted before all are there", EMBEDDING, "p.digit(p.from[first + thread]);\n    __syncthreads();",
     "p.digit(p.from[first + thread]);"),
    ("the next tile's digits come while these are read", EMBEDDING, "    __syncthreads();  // the digits have been read\n", ""),
    ("a lane's tiles begin where its first begins", EMBEDDING, "= place + places[k]", "= place"),
    ("after 128 tiles a digit begins again", EMBEDDING, "before + sum_before(sum)", "sum_before(sum)"),
    ("a warp's first lanes add their own sums", EMBEDDING, "if (lane >= distance) sum += earlier", "sum += earlier"),
    ("digits of other warps count as none", EMBEDDING, "warp_reduce(earlier, Plus{}) + ", ""),
    ("an error is that of any thread of the block", FIRST_BAD, "if (static_cast<unsigned long long>(i) == first)", "if (i < n)"),
    ("a thread of the check looks at one index", FIRST_BAD, "while (i < n && !bad(i)) i += item_stride();", "if (i < n && !bad(i)) i = n;"),
    ("blocks record their errors in one place", FIRST_BAD, "findings[blockIdx.x]", "findings[0]"),
    ("equal rows change their order", EMBEDDING, "for (int u = 0; u < thread; ++u) earlier",
     "for (int u = thread + 1; u < static_cast<int>(smaller(kTile, p.n - tile * kTile)); ++u) earlier"),
    ("the highest digit is not sorted by", EMBEDDING, "pass.shift < bits", "pass.shift + kDigitBits < bits"),
    ("a row that goes on counts as one that begins", EMBEDDING, "const bool begins = !s.is_of(u - 1, row);", "const bool begins = true;"),
    ("a row that goes on is written twice", EMBEDDING, "    if (begins && ends)", "    if (begins || ends)"),
    ("the last piece of a row is left out", EMBEDDING, "next < s.pieces; ++next", "next + 1 < s.pieces; ++next"),
    ("rows that began earlier are joined, too", EMBEDDING,
     "    if (s.uses[begin].row == row && s.is_of(begin - 1, row)) continue;  // it began earlier\n", ""),
    ("an index outside of the table has a gradient", EMBEDDING, "      if (row == s.rows) break;  // outside the table: these are last\n", ""),
    ("an index outside of the table is read", EMBEDDING, "if (row >= 0 && row < rows)\n", "if (row != -1)\n"),
    ("the first tile of keys is not waited for", ATTENTION, "    wait_for_copies<0>();\n    __syncthreads();  // tile", "    __syncthreads();  // tile"),
    ("a wait that leaves the newest group", ATTENTION, "wait_for_copies<0>();\n    __syncthreads();  // tile", "wait_for_copies<1>();\n    __syncthreads();  // tile"),
    ("no barrier: a stage is filled that is still read", ATTENTION, "    __syncthreads();  // tile `step` has arrived, and all threads have used the previous tile\n", ""),
    ("the next tile lands in the stage in use", ATTENTION, "return memory + step % 2 * 2", "return memory + step / 2 % 2 * 2"),
    ("the sums of a row are not of all its lanes", ATTENTION, "  x += __shfl_xor_sync(0xffffffffU, x, 1);\n  return x + __shfl_xor_sync(0xffffffffU, x, 2);",
     "  return x + __shfl_xor_sync(0xffffffffU, x, 1);"),
    ("what was summed does not shrink", ATTENTION, "out[j][q] *= shrink[q / 2]", "out[j][q] *= shrink[0] > 2 ? shrink[q / 2] : 1.0F"),
    ("rows g and g + 8 change their factors", ATTENTION, "out[j][q] *= shrink[q / 2]", "out[j][q] *= shrink[1 - q / 2]"),
    ("a query sees one key too many", ATTENTION, "i < tokens ? i + 1 : tokens", "i < tokens - 1 ? i + 2 : tokens"),
    ("keys behind the last are seen", ATTENTION, "p.seen_by(first) / kKeys;  // with", "ceil_div(p.seen_by(first), kKeys);  // with"),
    ("keys behind the last are seen by the gradient of queries", ATTENTION, "p.seen_by(first) / kKeys;\n", "ceil_div(p.seen_by(first), kKeys);\n"),
    ("a tile at the diagonal counts as whole", ATTENTION, "begin < first + kTensorRows - 1", "begin < first"),
    ("a tile at the end counts as whole", ATTENTION, "begin + kQueries <= tokens && ", ""),
    ("scores that are all -infinity are subtracted from each other", ATTENTION, "largest[h] == -INFINITY ? 0.0F : largest[h]", "largest[h]"),
    ("the largest score is kept in the units of exp2", ATTENTION, "largest[h] * kLn2", "largest[h]"),
    ("the terms of a tile land in the stage in use", ATTENTION, "all_terms + step % 2 * kQueries + place", "all_terms + (step + 1) % 2 * kQueries + place"),
    ("the terms of all tiles are those of the first", ATTENTION, "    next_terms += kQueries;\n", ""),
    ("both parts of a tile have the terms of the first", ATTENTION, "all_terms + step % 2 * kQueries + part", "all_terms + step % 2 * kQueries"),
    ("both parts of a tile have the keys of the first", ATTENTION, "keys = stages.first(step) + part * kRowStride<dim>", "keys = stages.first(step)"),
    ("results of an odd width are stored in pairs", ATTENTION, "p.pairs = half_pairs(out, s)", "p.pairs = true"),
    ("the keys' pass begins a tile late", ATTENTION, "first / kQueries * kQueries : 0", "(first / kQueries + 1) * kQueries : 0"),
    ("the backward pass multiplies keys where it wants values", ATTENTION, "values = stages.second(step)", "values = stages.first(step)"),
    ("dK has no factor", ATTENTION, "store_rows<dim>(dk, scales", "store_rows<dim>(dk, ones"),
    ("operands that packs do not fit go by packs", ATTENTION, "p.packs = half_packs(q, s) && half_packs(k, s) && half_packs(v, s);", "p.packs = true;"),
    ("the gradient of the result goes by packs wherever it lies", ATTENTION, " && half_packs(dout, s)", ""),
    ("a chunk is looked for in the tensor before its own", TABLE, "first[middle] <= chunk", "first[middle] < chunk"),
    ("all chunks of a tensor are its first", TABLE, "(chunk - first[row]) * kChunk", "0 * kChunk"),
    ("a misaligned amsgrad maximum goes by packs", OPTIM, "t.v.data(), t.largest.data())};", "t.v.data())};"),
    ("the last table is not launched", TABLE, "    table.add(row_of(t), n);\n  }\n  flush();\n", "    table.add(row_of(t), n);\n  }\n"),
    ("a lane's largest is taken for the row's", LOSS, "    largest = team_reduce<kTeam>(largest, Larger{});\n", ""),
    ("the smoothed sum is a thread's", LOSS, "      unlikely = block_reduce<kThreads>(unlikely, Plus{});\n", ""),
    ("a misaligned gradient of logits goes by packs", LOSS, "width % kPack<S> == 0 && aligned(x.data(), dx.data())", "width % kPack<S> == 0"),
    ("the target is looked for pack by pack", LOSS, "column = i * kWidth + k", "column = i + k"),
    ("an ignored row that has a NaN has a gradient", LOSS, "= skip || column >= labels.classes ?", "= column >= labels.classes ?"),
    ("padding has a gradient", LOSS, "= skip || column >= labels.classes ?", "= skip ?"),
    ("padding counts in the sum of a long row", LOSS, "max_and_sum(x, n)", "max_and_sum(x, p.width)"),
    ("padding is not skipped between rows", LOSS, "row.load(p.x + r * p.width, n", "row.load(p.x + r * n, n"),
    ("the sum of a branch is not kept", NORM, "      row.store(p.sum + r * p.n, p.n, lane, p.packs);\n", ""),
    ("what reaches the sum beside its norm is lost in long rows", NORM, "      if constexpr (kAdds) dx = dx + p.dsum[r * p.n + i];\n", ""),
    ("a misaligned residual goes by packs", NORM, "x.data(), residual.data(), sum.data(), y.data(),", "x.data(), sum.data(), y.data(),"),
    ("a misaligned gradient of the sum goes by packs", NORM, "dy.data(), dsum.data(), sum.data(), dx.data(),\n", "dy.data(), sum.data(), dx.data(),\n"),
    ("misaligned weights go by packs", NORM, "x.data(), y.data(), weight.data(), bias.data())", "x.data(), y.data())"),
    ("the residual's gradient is not stored", NORM, "      if (p.dresidual != nullptr) dy.store(p.dresidual + r * p.n, p.n, lane, p.packs);\n", "      {}\n"),
    ("teams of a block add their sums at once", NORM, "      __syncthreads();\n    }\n    for (std::int64_t i = threadIdx.x; i < 2 * p.n", "    }\n    for (std::int64_t i = threadIdx.x; i < 2 * p.n"),
    ("the elements of a 16-bit pair change places", PACK, "T(first).bits | std::uint32_t{T(second).bits} << 16", "T(second).bits | std::uint32_t{T(first).bits} << 16"),
    ("a factor is rounded to 16 bits", ELEMENTWISE, "{ return v * s; }", "{ return v * W(T(s)); }"),
    ("a dropout scale is rounded to 16 bits", ELEMENTWISE, "v * (m ? scale : Wide<T>(0))", "v * (m ? Wide<T>(T(scale)) : Wide<T>(0))"),
    ("elements after the last pack are not cast", COPY, "i < n; i += kThreads) to[i] = H(from[i]);", "i < 0; i += kThreads) to[i] = H(from[i]);"),
    ("misaligned weights are cast by packs", COPY, "aligned(t.to.data()) && aligned(t.from.data())", "aligned(t.to.data())"),
    ("a part is sent before it has arrived", NODES, "      await(*now);\n", ""),
    ("a part is copied before the node has summed it", NODES, "    out_.wait(fetched->ready());\n", ""),
    ("parts are gathered before they are on the device", NODES, "    group_.stream.wait(stage.emptied);\n", ""),
    ("all ranks of a node copy the first part", NODES, "place.output + at(local()) * part_of(piece) * width;\n    const Operation", "place.output;\n    const Operation"),
    ("all ranks of a node deliver the first part", NODES, "place.output + at(local()) * part_of(piece) * width;\n    Staging", "place.output;\n    Staging"),
    ("another stage is sent", NODES, "stages_[p % kStages].memory->data()", "stages_[(p + 1) % kStages].memory->data()"),
    ("an average is divided twice", NODES, "    if (transfer.call.op == ReduceOp::avg) transfer.call.op = ReduceOp::sum;\n", ""),
    ("an average is over a node", NODES, "transfer.averaged_over = group_.peers.size()", "transfer.averaged_over = node_peers_.size()"),
    ("results are averaged again when they are gathered", NODES, "    if (collective == Collective::all_gather) transfer.call.op = ReduceOp::sum;\n", ""),
    ("a rest counts as a whole piece", NODES, "return piece.offset + at(shares_.units) * piece.unit <= transfer.call.count", "return true"),
    ("a rest is not copied back", NODES, "      copy(transfer.output.data() + piece.offset * width, rest_->data(),\n           (transfer.call.count - piece.offset) * width, group_.stream);\n", "      {}\n"),
    ("all pieces are sent in rings of the first's length", NODES, "rings_.find({segment, count})", "rings_.begin()"),
    ("each segment is taken from the beginning of the part", NODES, "      data += count * size_of(whole.call.dtype);\n", ""),
    ("a rank sends its first segment only", NODES, "      data += count * size_of(whole.call.dtype);\n", "      break;\n"),
    ("a part has one unit in every node", NODES, "return shares_.units / node_peers_.size();", "return 1;"),
    ("a part may exceed its staging memory", NODES, "shares_.longest_unit(kPartBytes / width)", "kPartBytes / width"),
    ("a node of one rank keeps its values undivided in an average", NODES, "    transfer.averaged_over = group_.peers.size();\n",
     "    transfer.averaged_over = node_peers_.size() > 1 ? group_.peers.size() : 1;\n"),
    ("a failure is not told to the node", NODES, "      node_peers_.health().record_failure(failed.kind, -1, failed.text);\n      node_->give_up();\n", ""),
    ("data of the caller's stream is not waited for", NODES, "    group_.stream.wait(transfer.operation->ready());\n", ""),
    ("a rank's failure is not looked for while the device works", NODES, "      if (const auto report = peers.health().look_for_report(); report.kind != FailureKind::none)\n        peers.health()", "      if (const auto report = peers.health().look_for_report(); false)\n        peers.health()"),
]


def match():
    """Fails if the text of a mistake does not occur exactly once in its source."""
    bad = [f"planted: '{name}': {n} times in {source}: {old!r}" for name, source, old, _ in PLANTED
           for n in [(ROOT / source).read_text().count(old)] if n != 1]
    sys.exit("\n".join(bad) if bad else 0)


def commands(build, target):
    said = subprocess.run(["ninja", "-C", build, "-t", "commands", target], capture_output=True, text=True, check=True)
    return said.stdout.splitlines()


def program_of(source):
    return PROGRAMS.get(source, "tests_kernels_cuda")


def compile_command(build, source):
    """The command that compiles the source, or the unit of several sources that includes it (ringsmith_unity)."""
    def compiles(words):
        if "-c" not in words:
            return False
        compiled = pathlib.Path(words[words.index("-c") + 1])
        in_unit = compiled.parent.name == "Unity" and f'"{ROOT / source}"' in compiled.read_text()
        return compiled == ROOT / source or in_unit

    words = next(filter(compiles, map(shlex.split, commands(build, program_of(source)))))
    # Drops the source and the outputs, because run() compiles a copy in another folder, and -Werror, because a planted
    # mistake may cause warnings.
    return [w for i, w in enumerate(words) if w not in ("-MD", "-Werror", "-MT", "-MF", "-o", "-c")
            and words[i - 1] not in ("-MT", "-MF", "-o", "-c")]


def link_command(build, source):
    words = shlex.split(commands(build, program_of(source))[-1].removeprefix(": && ").removesuffix(" && :"))
    # The unit that includes the source is linked as well. The copy comes first.
    return [*words, "-Wl,--allow-multiple-definition"]


def run(build, folder, source, changed, text, compiler, linker):
    """Runs the tests with `text` as the content of `changed`, which is the source or one of its headers."""
    copy, made, program, header = folder / "copy.cpp", folder / "copy.o", folder / "tests", folder / changed
    header.parent.mkdir(parents=True, exist_ok=True)
    header.write_text(text)
    copy.write_text(f'#line 1 "{ROOT / source}"\n{text if changed == source else (ROOT / source).read_text()}')
    first = next(i for i, word in enumerate(compiler) if word.startswith("-"))
    # ccache would find the object of the copy with the header that it included before.
    built = subprocess.run([*compiler[:first], f"-I{folder}", *compiler[first:], "-c", copy, "-o", made], cwd=build,
                           env={**os.environ, "CCACHE_DISABLE": "1"}, capture_output=True, text=True)
    header.unlink()
    if built.returncode != 0:
        sys.exit(f"planted: a copy of {source} does not compile:\n{built.stderr}")
    at = linker.index("-o")
    command = [*linker[:at], "-o", str(program), str(made), *linker[at + 2:]]
    subprocess.run(command, cwd=build, check=True)
    try:
        return subprocess.run([program, "-a", CASES[source]], capture_output=True, text=True, timeout=300, cwd=ROOT,
                              env={"VGPU_DEADLINE_MS": "10000", "PATH": "/usr/bin:/bin"})
    except subprocess.TimeoutExpired:
        return None


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("build", type=pathlib.Path, nargs="?")
    p.add_argument("--match", action="store_true", help="compile nothing; compare the texts with the sources")
    p.add_argument("--only", default="", help="mistakes with this word, or sources")
    p.add_argument("--part", default="1/1", metavar="I/N", help="of these, every N-th from the I-th on")
    a = p.parse_args()
    part = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", a.part)
    first, step = map(int, part.groups()) if part else (1, 0)
    if first > step:
        p.error(f"--part {a.part}: give I/N, with I from 1 to N")
    if a.match:
        match()
    if a.build is None:
        p.error("BUILD is missing: a build folder, or --match")
    build = a.build.resolve()
    found = survived = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        chosen = [m for m in PLANTED if a.only in m[0] or a.only in m[1]][first - 1::step]
        for source in dict.fromkeys(USERS.get(m[1], m[1]) for m in chosen):
            compiler, linker = compile_command(build, source), link_command(build, source)
            text = (ROOT / source).read_text()
            done = run(build, folder, source, source, text, compiler, linker)
            if done is None or done.returncode != 0:
                sys.exit(f"planted: the tests of {source} itself fail:\n{done.stdout + done.stderr if done else 'no end'}")
            for what, where, old, new in chosen:
                if USERS.get(where, where) != source:
                    continue
                done = run(build, folder, source, where, (ROOT / where).read_text().replace(old, new), compiler, linker)
                caught = done is not None and done.returncode != 0
                found, survived = found + caught, survived + (not caught)
                how = ("no end in 300 s" if done is None else "all tests passed" if not caught else
                       next((line.strip() for line in (done.stderr + done.stdout).splitlines()
                             if line.startswith("vgpu:") or "REQUIRE(" in line or "CHECK(" in line), f"exit code {done.returncode}"))
                print(f"{'found   ' if caught else 'SURVIVED'} {pathlib.Path(where).name}: {what}: {how}", flush=True)
    print(f"planted: {found} of {found + survived} mistakes found")
    sys.exit(1 if survived else 0)


main()
