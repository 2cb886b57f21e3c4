// Trains a small network to read digits, data-parallel over all its ranks:
//
//   ./train                                                      alone
//   ringrun --standalone --nproc-per-node 3 ./train              or mpirun -n 3 ./train, or srun
//   ringrun --standalone --nproc-per-node 3 ./train 6 --resume   continues, up to 6 epochs
//
// On SIGTERM or SIGUSR1 it finishes and saves the current epoch, and exits with code 75.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "runtime/ringsmith.hpp"

using namespace ringsmith;

class Net : public Module {
 public:
  Net() {
    register_module("conv", conv_);
    register_module("out", out_);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor seen = max_pool2d(relu(conv_(x)), {2, 2}, {2, 2});
    return out_(reshape(seen, {x.size(0), -1}));
  }

 private:
  Conv2d conv_{1, 16, {5, 5}};
  Linear out_{16 * 12 * 12, 10};
};

// Contains the model, the optimizer and the number of finished epochs. The file is either complete
// or absent.
constexpr const char* kCheckpoint = "checkpoint.safetensors";

void save(const Module& model, const Optimizer& optimizer, int epochs) {
  StateDict state;
  for (const auto& [name, value] : model.state_dict()) state["model." + name] = value;
  for (const auto& [name, value] : optimizer.state_dict()) state["optimizer." + name] = value;
  save_safetensors(kCheckpoint, state, {{"epochs", std::to_string(epochs)}});
}

int load(Module& model, Optimizer& optimizer) {
  const Checkpoint checkpoint = load_safetensors(kCheckpoint);
  StateDict of_model, of_optimizer;
  for (const auto& [name, value] : checkpoint.tensors)
    (name[0] == 'm' ? of_model : of_optimizer)[name.substr(name.find('.') + 1)] = value;
  model.load_state_dict(of_model);
  optimizer.load_state_dict(of_optimizer);
  return std::stoi(checkpoint.metadata.at("epochs"));
}

// Returns the share of images that are classified correctly. Each image is tested by one rank.
double accuracy(Module& model, const Dataset& images, comm::ProcessGroup& group) {
  const NoGradGuard no_grad;
  const EvalGuard evaluating(model);
  std::vector<std::int64_t> mine;
  for (std::int64_t i = group.rank(); i < images.size(); i += group.size()) mine.push_back(i);
  const auto [inputs, targets] = images.get(mine);
  const auto guesses = max(model(inputs), 1).second.to_vector<std::int64_t>();
  const auto labels = targets.to_vector<std::int64_t>();
  double right = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) right += guesses[i] == labels[i] ? 1 : 0;
  group.all_reduce(std::span(&right, 1));
  return right / static_cast<double>(images.size());
}

void train(const std::shared_ptr<comm::ProcessGroup>& group, int epochs, bool resume) {
  const StopRequest stop;
  const ImageDataset digits(draw_digits(3000, 1)), unseen(draw_digits(500, 2));
  DistributedSampler sampler(digits.size(), {.replicas = group->size(), .rank = group->rank()});
  DataLoader loader(digits, sampler, {.batch_size = 32});
  Net model;
  AdamW optimizer(model.parameters(), {.lr = 2e-3});
  int epoch = resume ? load(model, optimizer) : 0;
  require_agreement(*group, {{"EPOCHS", std::to_string(epochs)},
                             {"the number of finished epochs", std::to_string(epoch)}});
  DistributedDataParallel ddp(model, group);
  for (; epoch < epochs; ++epoch) {
    sampler.set_epoch(epoch);
    double total = 0;
    for (const auto& [images, labels] : loader.epoch()) {
      optimizer.zero_grad();
      const Tensor loss = cross_entropy(ddp.forward(images), labels);
      loss.backward();
      optimizer.step();
      total += loss.item<float>() / static_cast<double>(loader.batches());
    }
    group->all_reduce(std::span(&total, 1), comm::ReduceOp::avg);
    check_drift(*group, model.named_parameters());
    check_finite(model.named_parameters());
    if (group->rank() == 0) save(model, optimizer, epoch + 1);
    if (group->rank() == 0) std::printf("epoch %d: loss %.4f\n", epoch + 1, total);
    stop.throw_if_agreed(*group);
  }
  double parameters = 0;
  for (const Tensor& t : model.parameters()) parameters += sum(t).item<float>();
  std::printf("rank %d of %d: accuracy %.3f, sum of the parameters %.9f\n", group->rank(),
              group->size(), accuracy(model, unseen, *group), parameters);
}

int main(int argc, char** argv) {
  return run_main("train", [&] {
    const int epochs = argc > 1 ? std::atoi(argv[1]) : 3;
    const bool resume = argc > 2 && argv[2] == std::string("--resume");
    require(epochs > 0 && argc <= (resume ? 3 : 2), "usage: train [EPOCHS [--resume]]");
    train(comm::init_process_group(), epochs, resume);
    return 0;
  });
}
