// How a GPU is made to fail, for failing_engine.cc.
#pragma once

namespace baton {

// Enqueues on GPU `index` a kernel that writes where no memory is: from then on every call of CUDA
// in this process fails.
void access_badly(int index);

}  // namespace baton
