// Names of functions and lines of code, for reports. Kernels are often local to their file, so the
// program's own symbol table is read, not the dynamic one.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <filesystem>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/vgpu/report.hpp"

namespace vgpu {

namespace {

// Where the program itself, the first object, was loaded.
std::uintptr_t load_base() {
  std::uintptr_t base = 0;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        *static_cast<std::uintptr_t*>(out) = info->dlpi_addr;
        return 1;
      },
      &base);
  return base;
}

// The symbol of the function that begins at this address of the file; "" if there is none.
std::string find_symbol(const char* file, std::size_t bytes, std::uintptr_t address) {
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(file);
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(file + header->e_shoff);
  if (header->e_shoff + header->e_shnum * sizeof(Elf64_Shdr) > bytes) return "";
  for (int s = 0; s < header->e_shnum; ++s) {
    if (sections[s].sh_type != SHT_SYMTAB) continue;
    const char* names = file + sections[sections[s].sh_link].sh_offset;
    const auto* symbols = reinterpret_cast<const Elf64_Sym*>(file + sections[s].sh_offset);
    for (std::size_t i = 0; i < sections[s].sh_size / sizeof(Elf64_Sym); ++i)
      if (symbols[i].st_value == address && ELF64_ST_TYPE(symbols[i].st_info) == STT_FUNC)
        return names + symbols[i].st_name;
  }
  return "";
}

std::string demangle(const std::string& name) {
  char* readable = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, nullptr);
  std::string out = readable != nullptr ? readable : name;
  std::free(readable);
  for (const char* noise : {"(anonymous namespace)::", "ringsmith::"})
    for (std::size_t at = out.find(noise); at != std::string::npos; at = out.find(noise))
      out.erase(at, std::strlen(noise));
  return out.substr(0, out.find('('));
}

}  // namespace

std::string describe_function(const void* function) {
  std::string name;
  const int fd = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (fd >= 0 && ::fstat(fd, &status) == 0) {
    const auto bytes = static_cast<std::size_t>(status.st_size);
    void* file = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (file != MAP_FAILED) {
      name = find_symbol(static_cast<const char*>(file), bytes,
                         reinterpret_cast<std::uintptr_t>(function) - load_base());
      ::munmap(file, bytes);
    }
  }
  if (fd >= 0) ::close(fd);
  if (!name.empty()) return demangle(name);
  char text[32];
  std::snprintf(text, sizeof text, "%p", function);
  return text;
}

std::string describe_code(const void* instruction) {
  char command[160], line[512] = "";
  std::snprintf(command, sizeof command, "addr2line -e /proc/%d/exe 0x%zx 2>/dev/null", ::getpid(),
                std::size_t{reinterpret_cast<std::uintptr_t>(instruction) - load_base()});
  FILE* out = ::popen(command, "r");
  if (out == nullptr) return "";
  const bool got = std::fgets(line, sizeof line, out) != nullptr;
  ::pclose(out);
  std::string text = got ? line : "";
  text = std::filesystem::path(text.substr(0, text.find_first_of("\n "))).lexically_normal();
  return text.empty() || text[0] == '?' ? "" : text;
}

}  // namespace vgpu
