#include "runtime/comm/failure/sites.hpp"

#include <string_view>

namespace ringsmith::comm {

Sites::Number Sites::look_up(Site site) {
  for (const Known& k : known_)
    if (k.site.file == site.file && k.site.line == site.line) return {k.number, false};
  if (known_.size() == kSites) return {};
  const auto number = static_cast<std::uint32_t>(known_.size());
  known_.push_back({site, number});
  const std::string text = text_of(site);
  for (std::size_t i = 0; i < text.size() && i + 1 < kSiteText; ++i)
    texts_[number].text[i].store(text[i], std::memory_order_relaxed);
  return {number, true};
}

std::string text_of(Site site) {
  if (site.file == nullptr) return {};
  const std::string_view path = site.file;
  const std::size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1)) + ":" +
         std::to_string(site.line);
}

std::string text_of(const SiteText* sites, std::uint64_t number) {
  std::string text;
  if (number == 0 || number >= kSites) return text;
  for (const auto& c : sites[number].text) {
    const char letter = c.load(std::memory_order_relaxed);
    if (letter == '\0') break;
    text += letter;
  }
  return text;
}

}  // namespace ringsmith::comm
