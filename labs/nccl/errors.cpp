#include "labs/nccl/errors.hpp"

#include <new>

#include "runtime/base/error.hpp"

namespace ringsmith::nccl {

namespace {
thread_local std::string text_of_thread;
}

ncclResult_t fail(ncclResult_t result, std::string text) {
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
