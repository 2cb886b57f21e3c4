// Matrix product, version 3: sums in registers (kernels/cuda/tile_product.cuh has the picture).
//
//   float   64 x 64 of C by 64 threads, 8 x 8 each: 16 shared loads for 64 multiply-adds
//   double  32 x 32 of C by 64 threads, 4 x 4 each
//   f16, bf16: as float; operands are widened on their way into shared memory, sums are floats
//
// Any strides are supported, because the threads that load a slab run along whichever dimension is
// contiguous. It suits the emulator, because a fiber's 8 x 8 sums become vector registers of the
// CPU and there are few barriers.
#include <type_traits>

#include "kernels/cuda/matmul.hpp"
#include "kernels/cuda/tile_product.cuh"

namespace ringsmith::kernels::cuda {

namespace {

template <class Element>
struct MatrixProblem {
  using T = std::conditional_t<kIsHalf<Element>, float, Element>;
  Product<Element> p;
  std::int64_t m, n;
  bool a_along_k, b_along_n;

  __device__ const Element* row(std::int64_t i) const { return &p.a(i, 0); }
  __device__ const Element* column(std::int64_t j) const { return &p.b(0, j); }
  __device__ T a(const Element* row, std::int64_t k) const {
    return static_cast<T>(row[k * p.a.col_stride]);
  }
  __device__ T b(std::int64_t k, const Element* column) const {
    return static_cast<T>(column[k * p.b.row_stride]);
  }
  __device__ void store(std::int64_t i, std::int64_t j, T sum) const {
    if (p.bias != nullptr) sum += static_cast<T>(p.bias[j]);
    Element& c = p.c(i, j);
    c = Element(p.store == Store::add ? static_cast<T>(c) + sum : sum);
  }
};

template <class Shape, class T>
__global__ void __launch_bounds__(Shape::kThreads) blocked(Product<T> product) {
  for (std::int64_t batch = blockIdx.z; batch < product.batches; batch += gridDim.z) {
    Product<T> p = product;
    p.a.data += batch * p.a_batch;
    p.b.data += batch * p.b_batch;
    p.c.data += batch * p.c_batch;
    const MatrixProblem<T> problem{p, p.c.rows, p.c.cols, p.a.col_stride == 1, p.b.col_stride == 1};
    tile_product<Shape>(problem, std::int64_t{blockIdx.y} * Shape::kM,
                        std::int64_t{blockIdx.x} * Shape::kN, 0, p.a.cols);
  }
}

template <class Shape, class T>
void run(const Product<T>& p) {
  if (p.c.rows * p.c.cols * p.batches == 0) return;
  launch(blocked<Shape, T>, tile_grid(p.c.rows, p.c.cols, Shape::kM, Shape::kN, p.batches),
         Shape::kThreads, 0, stream(), p);
}

}  // namespace

void matmul_blocked(const Product<float>& p) { run<TileShape<64, 64, 16, 8, 8>>(p); }
void matmul_blocked(const Product<double>& p) { run<TileShape<32, 32, 16, 4, 4>>(p); }
void matmul_blocked(const Product<f16>& p) { run<TileShape<64, 64, 16, 8, 8>>(p); }
void matmul_blocked(const Product<bf16>& p) { run<TileShape<64, 64, 16, 8, 8>>(p); }

}  // namespace ringsmith::kernels::cuda
