// What DataParallel sends over the link between the root and one other device.
//
// It is counted where the copies are made, whatever carries them; the root's own part crosses no
// link. Over a training step, with P bytes of parameters on N devices, the root's links carry
// (N - 1) P out and (N - 1) P back, beside inputs and outputs: it grows with every device, where a
// rank of a ring all-reduce sends 2 P (N - 1) / N, which does not.
#pragma once

#include "runtime/base/units.hpp"

namespace ringsmith {

struct LinkTraffic {
  // from the root
  Bytes parameters;
  Bytes buffers;
  Bytes inputs;
  Bytes output_gradients;
  // to the root
  Bytes outputs;
  Bytes gradients;  // of the parameters
  Bytes input_gradients;

  [[nodiscard]] Bytes from_root() const { return parameters + buffers + inputs + output_gradients; }
  [[nodiscard]] Bytes to_root() const { return outputs + gradients + input_gradients; }
  LinkTraffic& operator+=(const LinkTraffic& o) {
    parameters += o.parameters;
    buffers += o.buffers;
    inputs += o.inputs;
    output_gradients += o.output_gradients;
    outputs += o.outputs;
    gradients += o.gradients;
    input_gradients += o.input_gradients;
    return *this;
  }
};

}  // namespace ringsmith
