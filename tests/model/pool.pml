/* pool.pml - a model of pools/pool.c: submit, workers that are brought one by one, park and leave,
 * the goal, the gate, blocked workers, a minimum that changes, and the end of the pool.
 *
 * What must hold: an item that was accepted is run exactly once (and once more for a yield), no
 * more than MAX threads are there, when all is quiet nothing lies there, mw_pool_free ends when all
 * was run, no thread is left then, and nobody touches the pool after; and the invariants of pool.c,
 * whenever the lock is free (`check`).
 *
 * The lock is a variable, and all that the pool knows is guarded by it; a step in `atomic` is what
 * happens under it. The event count is taken for what event_count.pml shows of it: an announced
 * worker that does not lie yet sees the epoch move, one that lies is woken, any one of them. Which
 * item is next is left open. Time is left open too: whatever waits for a time may happen at any
 * moment, so the gate acts whenever it is needed. Where there is no gate nothing heals a lost wake.
 *
 * Sizes:    MIN, MAX, CPUS, ITEMS (3 or 4; two submitters share them), PLACES (queue_max)
 * Variants: GATE            a gate may be started
 *           TIMES_UP        a parked worker's time may be up while more than MIN are there
 *           STARTS_FAIL     a thread may not be had
 *           SLOW            a submitter's worker may be slow: nobody relies on it, and it may
 *                           leave rather than park
 *           TOGETHER        items 0 and 1 run until both have started
 *           BLOCK           item 0 says that it blocks, until item 1 has run
 *           YIELD           item 0 yields once
 *           AGAIN           item 0 submits item 1 from inside
 *           RAISE=n, LOWER=n   somebody sets the minimum, at any time
 *           LATE            the pool is freed only when all is quiet
 * Mutants, to be found wrong:
 *           NOT_BROUGHT     a submit brings nobody
 *           BRING_FIRST     a submit looks whether somebody is needed before the item is there
 *           CHAIN_BROKEN    who takes an item does not bring the next worker
 *           LOOKED_EARLY    a worker frees the lock between its last look and parking
 *           ANNOUNCED_LATE  a worker announces itself after it has freed the lock
 *           CALL_KEPT       the call stays set when a worker has taken it up
 *           COMING_KEPT     a worker that arrives is still counted as coming
 *           COMING_ANYBODY  a slow worker that arrives clears what another one is awaited for
 *           YIELD_KEPT      who yielded and is back at the queue is still expected there
 *           UP_BLINDLY      whose time is up leaves without a look at the call
 *           NO_ROLL_BACK    a worker that could not be started stays counted
 *           UNCAPPED        a worker is brought at the goal as well
 *           SURPLUS_ALL     at the goal, not only above it, a worker leaves items to the others
 *           RAISE_UNTOLD, BLOCK_UNTOLD    the goal rises, and nobody is brought
 *           LOWER_UNTOLD    the minimum falls, and parked workers are not told
 *           GATE_DEAF       the gate is not called when the goal is reached
 *           GATE_OFF_EARLY  the gate ends with the pool though items wait
 *           NOT_DISMISSED   the pool's end does not wake who is parked
 *           END_UNTOLD      the gate's end is not told to who frees the pool
 *           FREED_EARLY     the pool's end does not wait until all have left
 *           UNJOINED        a thread that leaves does not join the one before it */

#ifndef MIN
#define MIN 2
#endif
#ifndef MAX
#define MAX 2
#endif
#ifndef CPUS
#define CPUS 1
#endif
#ifndef PLACES
#define PLACES 4
#endif
#ifndef ITEMS
#define ITEMS 3
#endif
#define ITEMS_MAX 4
#define STARTS    9 /* more than are ever tried: asserted */
#define NO_THREAD STARTS

bool locked;

/* guarded by the lock */
byte pending;
byte threads;
byte parked;
byte busy;
byte yielding;
bool coming;
bool called;
bool closing;
bool told; /* the condition variable `empty` */
byte ended = NO_THREAD;
bool gate_alive;
byte minimum = MIN;
byte injected;
byte blocked;
byte compensated;
bool queued[ITEMS_MAX];

/* the event count, as its users see it */
bool announced[STARTS];
bool lies[STARTS];
bool moved[STARTS]; /* or woken */

/* for the checks only */
byte starts;
bool alive[STARTS];
byte users = 2; /* calls into the pool by others than its workers */
byte accepted[ITEMS_MAX];
byte runs[ITEMS_MAX]; /* begun */
byte ran[ITEMS_MAX];  /* ended */
bool freed;

#define SUM   (minimum + injected + compensated)
#define GOAL  (SUM < MAX -> SUM : MAX)
#define AWAKE (threads - parked)
#define SHORT (compensated < blocked && GOAL < MAX)
#define NEEDED (pending > yielding && !coming && (AWAKE < GOAL || GOAL < MAX))
#define ALL_RAN                                                                                    \
    (ran[0] == accepted[0] && ran[1] == accepted[1] && ran[2] == accepted[2] &&                    \
     ran[3] == accepted[3])
#define NOBODY_ALIVE                                                                               \
    (!alive[0] && !alive[1] && !alive[2] && !alive[3] && !alive[4] && !alive[5] && !alive[6] &&    \
     !alive[7] && !alive[8])
#ifdef UNCAPPED
#define MAY_BRING true
#else
#define MAY_BRING (AWAKE < GOAL)
#endif
#ifdef SURPLUS_ALL
#define MAY_TAKE (AWAKE < GOAL)
#else
#define MAY_TAKE (AWAKE <= GOAL)
#endif
#ifdef NOT_BROUGHT
#define SUBMIT_BRINGS false
#else
#define SUBMIT_BRINGS true
#endif

inline check()
{
    assert(!freed);
    assert(pending <= yielding || coming || parked == 0 || AWAKE >= GOAL);
    assert(pending == 0 || threads > 0);
    assert(parked + busy <= threads && threads <= MAX);
    assert(!called || coming);
    assert(pending <= PLACES)
}

#define LOCK atomic { !locked -> locked = true; assert(!freed) }

inline unlock()
{
    d_step {
        check();
        locked = false
    }
}

/* But for the lock, notify_one of the event count. */
inline choose_one()
{
    d_step {
        i = 0;
        do
        :: i < STARTS ->
            if
            :: announced[i] && !lies[i] -> moved[i] = true
            :: else
            fi;
            i++
        :: else -> break
        od;
        i = 0
    }
    if
    :: lies[0] -> lies[0] = false; moved[0] = true
    :: lies[1] -> lies[1] = false; moved[1] = true
    :: lies[2] -> lies[2] = false; moved[2] = true
    :: lies[3] -> lies[3] = false; moved[3] = true
    :: lies[4] -> lies[4] = false; moved[4] = true
    :: lies[5] -> lies[5] = false; moved[5] = true
    :: lies[6] -> lies[6] = false; moved[6] = true
    :: lies[7] -> lies[7] = false; moved[7] = true
    :: lies[8] -> lies[8] = false; moved[8] = true
    :: else
    fi
}

inline choose_all()
{
    d_step {
        i = 0;
        do
        :: i < STARTS ->
            moved[i] = moved[i] || announced[i];
            lies[i] = false;
            i++
        :: else -> break
        od;
        i = 0
    }
}

/* `failed` becomes whether the thread could not be had; `slow` is whether one may be slow. */
inline start(slow)
{
    if
    :: failed = false;
        assert(starts < STARTS);
        alive[starts] = true;
        threads++;
        coming = true;
        starts++;
        run worker(starts - 1, true)
#ifdef SLOW
    :: slow ->
        failed = false;
        assert(starts < STARTS);
        alive[starts] = true;
        threads++;
        starts++;
        run worker(starts - 1, false)
#endif
#ifdef STARTS_FAIL
    :: failed = true;
#ifdef NO_ROLL_BACK
        threads++
#endif
#endif
    fi
}

inline gate_call()
{
#ifdef GATE
    if
#ifdef GATE_DEAF
    :: AWAKE < GOAL && !gate_alive ->
#else
    :: !gate_alive ->
#endif
        if
        :: assert(starts < STARTS);
            gate_alive = true;
            alive[starts] = true;
            starts++;
            run gate(starts - 1)
#ifdef STARTS_FAIL
        :: true
#endif
        fi
    :: else
    fi
#else
    skip
#endif
}

inline compensate()
{
    do
    :: SHORT && SUM < minimum + CPUS -> compensated++
    :: else -> break
    od
}

inline bring(slow)
{
    compensate();
    if
    :: pending > yielding && !coming && MAY_BRING && parked > 0 ->
        parked--;
        coming = true;
        called = true;
        choose_one()
    :: pending > yielding && !coming && MAY_BRING && parked == 0 ->
        start(slow);
        failed = false
    :: else
    fi;
    if
    :: NEEDED -> gate_call()
    :: else
    fi
}

inline push(j)
{
    assert(!queued[j]);
    queued[j] = true;
    pending++
}

/* mw_pool_submit. `users` counts the call for as long as it may touch the pool. */
inline submit(j)
{
    atomic {
        LOCK;
        failed = false;
        if
        :: pending == PLACES -> failed = true
        :: pending < PLACES && threads == 0 -> start(true)
        :: pending < PLACES && threads > 0
        fi;
        if
        :: failed
        :: else ->
            accepted[j]++;
#ifdef BRING_FIRST
            bring(true);
            push(j)
#else
            push(j);
            if
            :: SUBMIT_BRINGS -> bring(true)
            :: else
            fi
#endif
        fi;
        failed = false;
        unlock()
    }
}

inline thread_end()
{
    before = ended;
    ended = me;
    told = true
}

inline join_before()
{
#ifndef UNJOINED
    (before == NO_THREAD || !alive[before]);
#endif
    alive[me] = false
}

#define TAKE(j) queued[j] && MAY_TAKE -> queued[j] = false; item = j

proctype worker(byte me; bool awaited)
{
    byte item, before, i;
    bool failed, yielded, limited;

    atomic {
        LOCK;
#ifndef COMING_KEPT
#ifdef COMING_ANYBODY
        coming = false;
#else
        coming = coming && !awaited;
#endif
#endif
    }

take:
    atomic {
        if
        :: TAKE(0)
        :: TAKE(1)
        :: TAKE(2)
        :: TAKE(3)
        :: pending == 0 || !MAY_TAKE -> goto park
        fi;
        pending--;
        busy++;
#ifndef CHAIN_BROKEN
        bring(false);
#endif
        runs[item]++;
        assert(runs[item] <= accepted[item]);
        unlock()
    }
#ifdef TOGETHER
    (item > 1 || (runs[0] > 0 && runs[1] > 0));
#endif
#ifdef BLOCK
    if
    :: item == 0 ->
        atomic {
            LOCK;
            blocked++;
#ifdef BLOCK_UNTOLD
            compensate();
#else
            bring(false);
#endif
            unlock()
        }
        (ran[1] > 0);
        atomic {
            LOCK;
            blocked--;
            compensated = (compensated < blocked -> compensated : blocked);
            unlock()
        }
    :: else
    fi;
#endif
#ifdef YIELD
    if
    :: item == 0 && accepted[0] == 1 ->
        atomic {
            LOCK;
            if
            :: pending < PLACES ->
                yielded = true;
                yielding++;
                accepted[0]++;
                push(0)
            :: else
            fi;
            unlock()
        }
    :: else
    fi;
#endif
#ifdef AGAIN
    if
    :: item == 0 -> submit(3)
    :: else
    fi;
#endif
    atomic {
        LOCK;
        ran[item]++;
        item = 0;
        busy--;
#ifndef YIELD_KEPT
        yielding = yielding - yielded;
#endif
        yielded = false
    }
    goto take;

park:
#ifdef LOOKED_EARLY
    locked = false;
    LOCK;
#endif
    atomic {
        if
        :: closing || !awaited -> goto leave
        :: !closing -> parked++
        fi
    }
sleep:
    atomic {
        if
        :: called ->
take_call:
#ifndef CALL_KEPT
            called = false;
#endif
            coming = false;
            goto take
        :: !called && closing -> parked--; goto leave
        :: !called && !closing
        fi;
        limited = threads > minimum;
#ifdef ANNOUNCED_LATE
        unlock()
    }
    announced[me] = true;
#else
        announced[me] = true;
        unlock()
    }
#endif
    if
    :: atomic { moved[me] -> moved[me] = false; announced[me] = false }
        goto woken
    :: atomic { !moved[me] -> lies[me] = true }
    fi;
    if
    :: atomic { moved[me] -> moved[me] = false; announced[me] = false }
        goto woken
#ifdef TIMES_UP
    :: atomic { limited && lies[me] -> lies[me] = false; announced[me] = false }
#endif
    fi;
    atomic {
        LOCK;
        limited = false;
        if
#ifdef UP_BLINDLY
        :: threads > minimum || closing -> parked--; goto leave
        :: else -> goto sleep
#else
        :: called -> goto take_call
        :: !called && (closing || threads > minimum) -> parked--; goto leave
        :: !called && !closing && threads <= minimum -> goto sleep
#endif
        fi
    }
woken:
    atomic { LOCK; limited = false }
    goto sleep;

leave:
    atomic {
        threads--;
        if
        :: injected > 0 && threads < minimum + injected ->
            injected = (threads > minimum -> threads - minimum : 0)
        :: else
        fi;
        thread_end();
        unlock()
    }
    join_before()
}

#ifdef GATE
proctype gate(byte me)
{
    byte before, i;
    bool failed;

round:
    if
    :: atomic {
        !locked && NEEDED ->
        LOCK;
#ifdef GATE_OFF_EARLY
        if
        :: closing -> goto leave
        :: else
        fi;
#endif
        if
        :: SHORT -> compensated++
        :: else ->
            if
            :: AWAKE >= GOAL && GOAL < MAX -> injected++
            :: else
            fi
        fi;
        bring(false);
        unlock()
    }
        goto round
    :: atomic { !locked && !NEEDED -> LOCK } /* not for a while, or the pool ends */
    fi;
leave:
    atomic {
        gate_alive = false;
        thread_end();
#ifdef END_UNTOLD
        told = false;
#endif
        unlock()
    }
    join_before()
}
#endif

proctype submitter(byte first, last)
{
    byte item, i;
    bool failed;

    item = first;
    do
    :: item <= last -> submit(item); item++
    :: else -> break
    od;
    users--
}

inline set_min(value, told_of_raise, told_of_fall)
{
    atomic {
        LOCK;
        i = (value > minimum -> value - minimum : 0);
        injected = (injected > i -> injected - i : 0);
        i = 0;
        minimum = value;
        if
        :: told_of_raise -> bring(true)
        :: else -> compensate()
        fi;
        if
        :: told_of_fall -> choose_all()
        :: else
        fi;
        unlock()
    }
}

#if defined(RAISE) || defined(LOWER)
proctype setter()
{
    byte i;
    bool failed;

#ifdef RAISE
#ifdef RAISE_UNTOLD
    set_min(RAISE, false, false);
#else
    set_min(RAISE, true, false);
#endif
#endif
#ifdef LOWER
#ifdef LOWER_UNTOLD
    set_min(LOWER, true, false);
#else
    set_min(LOWER, true, true);
#endif
#endif
    users--
}
#endif

/* mw_pool_free: when nobody submits any more, or when all is quiet. */
active proctype closer()
{
    byte i;
    bool over;

    users == 0;
    if
#ifndef LATE
    :: true
#endif
    :: timeout ->
        assert(ALL_RAN);
#ifdef TIMES_UP
        assert(threads <= minimum)
#endif
    fi;
    atomic {
        LOCK;
        closing = true;
#ifndef NOT_DISMISSED
        choose_all();
#endif
        over = threads == 0 && !gate_alive;
        told = false;
        unlock()
    }
#ifndef FREED_EARLY
    do
    :: over -> break
    :: atomic {
        !over && told ->
        LOCK;
        told = false;
        over = threads == 0 && !gate_alive;
        unlock()
    }
    od;
    (ended == NO_THREAD || !alive[ended]);
#endif
    atomic {
        freed = true;
        assert(ALL_RAN);
        assert(pending == 0 && busy == 0 && blocked == 0 && compensated == 0);
        assert(NOBODY_ALIVE)
    }
}

init
{
    atomic {
        run submitter(0, 1);
        run submitter(2, ITEMS - 1);
#if defined(RAISE) || defined(LOWER)
        users++;
        run setter()
#endif
    }
}
