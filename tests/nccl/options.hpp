// The client's command line, and the exchange of an id without MPI.
#pragma once

#include <chrono>
#include <cstring>
#include <thread>

#include "tests/nccl/checks.hpp"

namespace client {

struct Settings {
  int devices = 1;  // of this process
  std::size_t least = 8, most = 1 << 20, factor = 8;
  std::string make = "group";
  bool quick = false;
  // Without MPI:
  std::string id_file, fail;
  int process = 0, processes = 1;
};

inline std::size_t parse_size(const char* text) {
  char* end = NULL;
  std::size_t value = std::strtoull(text, &end, 10);
  if (*end == 'K') value <<= 10, ++end;
  if (*end == 'M') value <<= 20, ++end;
  if (*end != '\0' || value == 0) give_up(text, "is no size: give 8, 64K or 1M", __LINE__);
  return value;
}

inline Settings parse(int argc, char** argv) {
  Settings s;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "-q") {
      s.quick = true;
      continue;
    }
    if (i + 1 == argc) give_up(argv[i], "unknown, or without its value", __LINE__);
    const char* value = argv[++i];
    if (option == "-g")
      s.devices = std::atoi(value);
    else if (option == "-b")
      s.least = parse_size(value);
    else if (option == "-e")
      s.most = parse_size(value);
    else if (option == "-f")
      s.factor = parse_size(value);
    else if (option == "-m")
      s.make = value;
    else if (option == "--id-file")
      s.id_file = value;
    else if (option == "--rank")
      s.process = std::atoi(value);
    else if (option == "--ranks")
      s.processes = std::atoi(value);
    else if (option == "--fail")
      s.fail = value;
    else
      give_up(argv[i - 1], "unknown option", __LINE__);
  }
  if (s.devices < 1 || s.factor < 2) give_up("-g, -f", "give 1 or more; 2 or more", __LINE__);
  return s;
}

// Exchanges the id through a file. rename() makes the file appear with its whole contents.
inline ncclUniqueId id_by_file(const Settings& s) {
  ncclUniqueId id;
  if (s.process == 0) {
    NCCL(ncclGetUniqueId(&id));
    const std::string aside = s.id_file + ".new";
    FILE* file = std::fopen(aside.c_str(), "wb");
    if (file == NULL || std::fwrite(&id, sizeof id, 1, file) != 1 || std::fclose(file) != 0 ||
        std::rename(aside.c_str(), s.id_file.c_str()) != 0)
      give_up("--id-file", "cannot be written", __LINE__);
    return id;
  }
  for (int look = 0; look < 6000; ++look) {
    FILE* file = std::fopen(s.id_file.c_str(), "rb");
    const bool got = file != NULL && std::fread(&id, sizeof id, 1, file) == 1;
    if (file != NULL) std::fclose(file);
    if (got) return id;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  give_up("--id-file", "rank 0 did not write it within a minute", __LINE__);
}

}  // namespace client
