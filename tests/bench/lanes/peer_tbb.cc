// peer_tbb.cc - oneTBB: task_arena::enqueue into an arena of its own, all of whose places are for
// workers; the limit of the process is raised to them.
#include <cerrno>
#include <new>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/task_arena.h>

#include "peer_optional.h"

static tbb::task_arena *arena;
static void (*run_task)(task *one);

int peer_tbb_start(unsigned threads, void (*run)(task *one))
{
    run_task = run;
    // For as long as the process lives. One more than the workers: oneTBB counts the caller in.
    new tbb::global_control(tbb::global_control::max_allowed_parallelism, threads + 1);
    arena = new tbb::task_arena(static_cast<int>(threads), 0);
    arena->initialize();
    return 0;
}

int peer_tbb_submit(unsigned, task *one)
{
    arena->enqueue([one] { run_task(one); });
    return 0;
}
