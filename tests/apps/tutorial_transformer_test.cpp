// A tutorial's transformer, trained as a language model, and its mistakes:
//
//   TransformerEncoder(TransformerEncoderLayer(d_model, heads), layers)    no batch_first, no mask
//   register_buffer("pe", ...(5000, d_model)), and DDP(model) around it
//
// PyTorch's layer expects (time, batch, width) unless batch_first is set, but it receives (batch,
// time, width), so it attends along the batch.
#include <cmath>

#include "labs/apps/compare/metered_group.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/nn/layers.hpp"
#include "runtime/parallel/ddp.hpp"
#include "tests/comm/thread_ranks.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::apps;

namespace {

constexpr std::int64_t kWidth = 8, kWords = 20, kPlaces = 500;
constexpr int kHeads = 2;

struct Choices {
  bool batch_first, causal;
};

class Transformer : public Module {
 public:
  explicit Transformer(Choices choices) : choices_(choices) {
    register_module("embedding", embedding_);
    register_module("qkv", qkv_);
    register_module("head", head_);
    std::vector<float> table;
    for (std::int64_t p = 0; p < kPlaces; ++p)
      for (std::int64_t i = 0; i < kWidth; ++i) {
        const double angle =
            static_cast<double>(p) / std::pow(1e4, static_cast<double>(i / 2 * 2) / kWidth);
        table.push_back(static_cast<float>(i % 2 == 0 ? std::sin(angle) : std::cos(angle)));
      }
    register_buffer("pe", table_, from_vector(table, {kPlaces, kWidth}));
  }
  Tensor forward(const Tensor& tokens) override {  // (batch, time) -> (batch, time, words)
    const Tensor x = embedding_(tokens) + slice(table_, 0, 0, tokens.size(1));
    const Tensor rows = choices_.batch_first ? x : transpose(x, 0, 1);
    const Tensor seen = attention_qkv(qkv_(rows), kHeads, choices_.causal);
    return head_(x + (choices_.batch_first ? seen : transpose(seen, 0, 1)));
  }

 private:
  Choices choices_;
  Embedding embedding_{kWords, kWidth};
  Linear qkv_{kWidth, 3 * kWidth}, head_{kWidth, kWords};
  Tensor table_;
};

Tensor tokens() {
  return from_vector(std::vector<std::int64_t>{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8}, {3, 4});
}

// True if the token at (of_sample, of_place) affects the output at (sample, place).
bool changes(Choices choices, int sample, int place, int of_sample, int of_place) {
  manual_seed(1);
  Transformer model(choices);
  const NoGradGuard no_grad;
  const Tensor input = tokens();
  const auto at = [&] {
    return model(input).select(0, sample).select(0, place).to_vector<float>();
  };
  const auto before = at();
  input.data<std::int64_t>()[of_sample * 4 + of_place] = 7;
  return at() != before;
}

}  // namespace

TEST_CASE("the tutorial's transformer attends across the batch, and then to what comes later") {
  constexpr Choices kAsPrinted{false, false}, kBatchFirst{true, false}, kRight{true, true};
  CHECK(changes(kAsPrinted, 0, 2, 1, 2));        // depends on another sample at the same place
  CHECK_FALSE(changes(kAsPrinted, 0, 2, 0, 1));  // but not on its own past
  CHECK_FALSE(changes(kBatchFirst, 0, 2, 1, 2));
  CHECK(changes(kBatchFirst, 0, 2, 0, 3));  // sees the token that it must predict
  CHECK_FALSE(changes(kRight, 0, 2, 1, 2));
  CHECK_FALSE(changes(kRight, 0, 2, 0, 3));
  CHECK(changes(kRight, 0, 2, 0, 1));
}

TEST_CASE("the tutorial's table of positions is a buffer: DDP sends it in every step") {
  // This thread draws both models, because threads must not share the default generator.
  std::vector<std::unique_ptr<Transformer>> models;
  for (int r = 0; r < 2; ++r) models.push_back(std::make_unique<Transformer>(Choices{true, true}));
  const auto sent = test::run_threads<std::vector<double>>(2, [&](comm::ProcessGroup& group) {
    std::vector<double> out;
    for (const bool broadcasts : {true, false}) {
      const std::shared_ptr<comm::ProcessGroup> borrowed(std::shared_ptr<void>(), &group);
      const auto metered = std::make_shared<MeteredGroup>(borrowed);
      DdpOptions options;
      options.broadcast_buffers = broadcasts;
      metered->set_algorithm(comm::Algorithm::ring);
      DistributedDataParallel ddp(*models[static_cast<std::size_t>(group.rank())], metered,
                                  options);
      for (int step = 0; step < 3; ++step) {
        metered->reset_sent();
        sum(ddp.forward(tokens())).backward();
      }
      out.push_back(static_cast<double>((metered->sent() - metered->sent_by_all_reduces()).value));
    }
    return out;
  });
  // Bytes that rank 0 sends in addition to the gradients: 16 KB of the table, or a few words that
  // say which parameters were used.
  CHECK(sent[0][0] >= kPlaces * kWidth * 4);
  CHECK(sent[0][1] < 100);
}
