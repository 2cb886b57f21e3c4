// Copy and fill. Vectorisation does not change any bits, so one version serves both modes.
#include "kernels/copy.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/half_vector.hpp"
#include "kernels/cpu/loops.hpp"
#include "runtime/base/dtype.hpp"

namespace ringsmith::kernels::cpu {

template <class D, class S>
void copy(View<D> out, View<const S> in) {
  const Nest<2> nest = nest_of<2>({&out.layout, &in.layout});
  const std::int64_t so = nest.inner(0), si = nest.inner(1);
  for_each_run<2>(nest, [&](const Offsets<2>& at, std::int64_t n) {
    D* const to = out.data + at[0];
    const S* const from = in.data + at[1];
    if (so == 1 && si == 1) {
      if constexpr (std::is_same_v<D, S>)
        std::memmove(to, from, static_cast<std::size_t>(n) * sizeof(D));
      else if constexpr (std::is_same_v<D, float> && kIsHalf<S>)
        widen(from, to, n);
      else if constexpr (kIsHalf<D> && std::is_same_v<S, float>)
        narrow(from, to, n);
      else
        for (std::int64_t i = 0; i < n; ++i) to[i] = convert<D>(from[i]);
    } else {
      for (std::int64_t i = 0; i < n; ++i) to[i * so] = convert<D>(from[i * si]);
    }
  });
}

template <class T>
void fill(View<T> out, T value) {
  const Nest<1> nest = nest_of<1>({&out.layout});
  const std::int64_t so = nest.inner(0);
  for_each_run<1>(nest, [&](const Offsets<1>& at, std::int64_t n) {
    T* const to = out.data + at[0];
    if (so == 1)
      std::fill_n(to, n, value);
    else
      for (std::int64_t i = 0; i < n; ++i) to[i * so] = value;
  });
}

RINGSMITH_COPY_AND_FILL

}  // namespace ringsmith::kernels::cpu
