#include "runtime/comm/subgroup.hpp"

#include <algorithm>
#include <array>

#include "runtime/base/error.hpp"
#include "runtime/comm/types/settings.hpp"

namespace ringsmith::comm {

namespace {

std::string list_of(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

// Exchanges the members' records through the parent group: the first member receives the others'
// records, and sends all records to each of them.
class MemberBootstrap : public Bootstrap {
 public:
  MemberBootstrap(ProcessGroup& parent, std::shared_ptr<Bootstrap> job, std::vector<int> members,
                  int index)
      : parent_(&parent), job_(std::move(job)), members_(std::move(members)), index_(index) {
    const std::vector<int> nodes = parent.node_of();
    if (!nodes.empty()) node_ = nodes[static_cast<std::size_t>(parent.rank())];
  }

  [[nodiscard]] int rank() const override { return index_; }
  [[nodiscard]] int size() const override { return static_cast<int>(members_.size()); }
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& record) override {
    if (parent_ == nullptr) throw Error("the parent group may no longer exist");
    if (index_ > 0) {
      send(members_[0], record);
      return split_records(receive(members_[0]));
    }
    std::vector<std::string> records{record};
    for (std::size_t i = 1; i < members_.size(); ++i) records.push_back(receive(members_[i]));
    const std::string all = join_records(records);
    for (std::size_t i = 1; i < members_.size(); ++i) send(members_[i], all);
    return records;
  }
  void abandon() override { job_->abandon(); }
  [[nodiscard]] bool ends_survivors() const override { return job_->ends_survivors(); }
  [[nodiscard]] std::string scope() const override {
    const std::string outer = job_->scope();
    return "in the group of ranks " + list_of(members_) + (outer.empty() ? "" : ", " + outer);
  }
  [[nodiscard]] std::optional<int> node() const override { return node_; }
  void forget_parent() { parent_ = nullptr; }

 private:
  void send(int rank, const std::string& text) {
    auto length = static_cast<std::int64_t>(text.size());
    parent_->send(std::span<std::int64_t>(&length, 1), rank);
    parent_->send(std::span<const std::uint8_t>(reinterpret_cast<const std::uint8_t*>(text.data()),
                                                text.size()),
                  rank);
  }
  std::string receive(int rank) {
    std::int64_t length = 0;
    parent_->recv(std::span<std::int64_t>(&length, 1), rank);
    std::string text(static_cast<std::size_t>(length), ' ');
    parent_->recv(
        std::span<std::uint8_t>(reinterpret_cast<std::uint8_t*>(text.data()), text.size()), rank);
    return text;
  }

  ProcessGroup* parent_;
  std::shared_ptr<Bootstrap> job_;
  std::vector<int> members_;
  int index_;
  std::optional<int> node_;
};

// The group as seen by a rank outside it: every call throws a UsageError. rank() is -1, and size()
// is the group's.
class NonMemberGroup : public ProcessGroup {
 public:
  // rank and members are numbered as in the parent group.
  NonMemberGroup(int rank, const std::vector<int>& members, GroupOptions options)
      : why_("rank " + std::to_string(rank) + " is not in the group of " +
             (members.empty() ? "no ranks" : "ranks " + list_of(members)) +
             ": only its members may make calls in it"),
        size_(static_cast<int>(members.size())),
        options_(std::move(options)) {}

  [[nodiscard]] int rank() const override { return -1; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] const GroupOptions& options() const override { return options_; }
  WorkPtr submit(const Transfer& transfer) override { refuse(transfer.call.name()); }
  void set_algorithm(Algorithm) override { refuse("set_algorithm"); }
  std::shared_ptr<CommMemory> allocate(Bytes) override { refuse("allocate"); }
  std::shared_ptr<CommMemory> allocate_on(Device, Bytes) override { refuse("allocate_on"); }
  std::shared_ptr<ProcessGroup> new_group(const std::vector<int>&) override { refuse("new_group"); }
  std::shared_ptr<ProcessGroup> split(int) override { refuse("split"); }

 protected:
  void check_member(const char* call) const override { refuse(call); }

 private:
  [[noreturn]] void refuse(const char* call) const {
    throw UsageError(std::string(call) + ": " + why_);
  }

  std::string why_;
  int size_;
  GroupOptions options_;
};

template <std::size_t n>
std::vector<std::array<std::int32_t, n>> all_gather(ProcessGroup& group,
                                                    const std::array<std::int32_t, n>& mine) {
  std::vector<std::array<std::int32_t, n>> all(static_cast<std::size_t>(group.size()));
  group.all_gather(std::span<const std::int32_t>(mine),
                   std::span<std::int32_t>(all.data()->data(), all.size() * n));
  return all;
}

}  // namespace

std::vector<int> agreed_members(ProcessGroup& parent, const std::vector<int>& ranks) {
  // Exchanges the lists before it checks them, so that no rank waits for one that has thrown.
  constexpr std::size_t kMost = 64;  // ranks of a group (segments.cpp); a longer list is invalid
  std::array<std::int32_t, kMost + 1> mine{};
  mine[kMost] = static_cast<std::int32_t>(ranks.size());
  std::copy_n(ranks.begin(), std::min(ranks.size(), kMost), mine.begin());
  const auto lists = all_gather(parent, mine);
  const auto text = [&](std::size_t rank) {
    const auto& list = lists[rank];
    const auto n = std::min(static_cast<std::size_t>(list[kMost]), kMost);
    return "rank " + std::to_string(rank) + " called new_group({" +
           list_of({list.begin(), list.begin() + static_cast<std::ptrdiff_t>(n)}) + "})";
  };
  for (std::size_t r = 1; r < lists.size(); ++r)
    if (lists[r] != lists[0])
      throw MismatchError(text(0) + " but " + text(r) + ": all ranks must name the same members");
  require(!ranks.empty(), "new_group: a group needs at least one member");
  std::vector<int> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    require(sorted[i] >= 0 && sorted[i] < parent.size(), "new_group: " + std::to_string(sorted[i]) +
                                                             " is not a rank of this group of " +
                                                             std::to_string(parent.size()));
    require(i == 0 || sorted[i] != sorted[i - 1],
            "new_group: rank " + std::to_string(sorted[i]) + " is named twice");
  }
  return ranks;
}

std::vector<int> members_of_colour(ProcessGroup& parent, int colour) {
  const auto colours = all_gather(parent, std::array<std::int32_t, 1>{colour});
  std::vector<int> members;
  for (int r = 0; r < parent.size() && colour >= 0; ++r)
    if (colours[static_cast<std::size_t>(r)][0] == colour) members.push_back(r);
  return members;
}

std::shared_ptr<Bootstrap> make_member_bootstrap(ProcessGroup& parent,
                                                 const std::shared_ptr<Bootstrap>& job,
                                                 const std::vector<int>& members) {
  const auto mine = std::ranges::find(members, parent.rank());
  return std::make_shared<MemberBootstrap>(parent, job, members,
                                           static_cast<int>(mine - members.begin()));
}

std::shared_ptr<ProcessGroup> make_subgroup(ProcessGroup& parent,
                                            const std::shared_ptr<Bootstrap>& job,
                                            const std::vector<int>& members) {
  const auto mine = std::find(members.begin(), members.end(), parent.rank());
  if (mine == members.end())
    return std::make_shared<NonMemberGroup>(parent.rank(), members, parent.options());
  const auto bootstrap = std::make_shared<MemberBootstrap>(
      parent, job, members, static_cast<int>(mine - members.begin()));
  auto group = init_process_group(bootstrap, parent.options());
  bootstrap->forget_parent();
  return group;
}

}  // namespace ringsmith::comm
