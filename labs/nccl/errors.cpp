#include "labs/nccl/errors.hpp"

#include <cstdio>
#include <cstdlib>
#include <new>
#include <strings.h>
#include <unistd.h>

#include "runtime/base/error.hpp"

namespace ringsmith::nccl {

namespace {

thread_local std::string text_of_thread;

// Programs with their own weak ncclGetLastError (such as nccl-tests) never see our message, so
// NCCL_DEBUG=WARN, INFO or TRACE prints it, as in NCCL. Read when the library is loaded, because a
// thread of the program may change the environment later.
const bool kLoud = [] {
  const char* level = std::getenv("NCCL_DEBUG");
  if (level == nullptr) return false;
  for (const char* loud : {"WARN", "INFO", "TRACE"})
    if (strcasecmp(level, loud) == 0) return true;
  return false;
}();

}  // namespace

ncclResult_t fail(ncclResult_t result, std::string text) {
  if (text != text_of_thread && kLoud)  // a repeated error is printed only once
    std::fprintf(stderr, "ringsmith_nccl: pid %d: %s\n", getpid(), text.c_str());
  text_of_thread = std::move(text);
  return result;
}

const std::string& last_text() { return text_of_thread; }

Refusal current_refusal() {
  try {
    throw;
  } catch (const Refusal& refusal) {
    return refusal;
  } catch (const CudaError& error) {
    return {ncclUnhandledCudaError, error.what()};
  } catch (const UsageError& error) {
    return {ncclInvalidUsage, error.what()};
  } catch (const MismatchError& error) {
    return {ncclInvalidUsage, error.what()};
  } catch (const TimeoutError& error) {
    return {ncclSystemError, error.what()};
  } catch (const CommError& error) {  // a peer is gone, has failed, or has aborted
    return {ncclRemoteError, error.what()};
  } catch (const std::bad_alloc&) {
    return {ncclSystemError, "out of memory"};
  } catch (const std::exception& error) {
    return {ncclInternalError, error.what()};
  } catch (...) {
    return {ncclInternalError, "an unknown exception"};
  }
}

}  // namespace ringsmith::nccl
