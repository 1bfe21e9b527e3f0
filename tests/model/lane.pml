/* lane.pml - a model of lanes/lane.c and lane_loop.c: submit through the inbox or under the lock,
 * loops that are brought, park, stand by, linger and end, cancel, and the end of the lane.
 *
 * What must hold: a job that was accepted is done exactly once; fn runs once or never; no more than
 * CAP run; when all is quiet nothing lies there; mw_lane_free ends, and when it does nobody is
 * inside, no thread is left, and nobody touches the lane after; and the invariants of lane.c,
 * whenever the lock is free (`check`).
 *
 * The lock is a variable. A step in `atomic` or `d_step` is what happens between two looks at the
 * inbox, which submitters change without the lock. The threads' event count is taken for what
 * event_count.pml shows of it: an announced thread that does not lie yet sees the epoch move, one
 * that lies is woken, any one of them. Which job is next is left open: any that is queued.
 *
 * How brief leaves are is left open, too: `level` moves as any leaves could move it. A thread that
 * stands by may look at any time. Of two looks between which nothing is taken, the second ends the
 * mode, so there is no circle. A thread's slot goes on to a later one; which one gets that of the
 * thread that took the newest job is left open.
 *
 * Sizes:    CAP, JOBS (3 or 4; two submitters share them), PLACES (queue_max),
 *           CALLS (LANE_CALLS_MAX)
 * Variants: POOL            loops run on the shared pool, and yield after any job
 *           NO_LINGER       a parked thread's time is never up: nothing heals a lost wake-up
 *           STARTS_FAIL     a thread (or a place in the pool's queue) may not be had
 *           CANCEL          somebody cancels job 1; the lane is freed with cancel_queued
 *           AGAIN           done() of job 0 submits it once more
 *           TOGETHER=n      the first n jobs run until all of them have started, or will not: free
 *                           capacity must be used
 *           LEVEL=l         how leaves were before these: LONG, MIXED or BRIEF
 *           STEADY          they stay so, but for what a standby has seen; on the pool always
 *           WARM=n          n threads are parked already
 *           LATE            the lane is freed only when all is quiet
 * Mutants, to be found wrong:
 *           END_UNCHECKED   a loop ends though the last look found a job
 *           SHUT_APART      the inbox is looked into, and shut in a second step
 *           PUSH_APART      a submitter sees the inbox open, and pushes in a second step
 *           NO_ROLL_BACK    a loop that could not be started stays counted
 *           DONE_EARLY      cancel calls done() before it takes the job out
 *           DONE_TWICE      the lane's end does not take out what it cancels
 *           CALL_KEPT       the call stays when a thread has taken it
 *           CALLS_LOST      who takes a call takes all
 *           CALL_OWN        whose time is up leaves the call that may be there, and goes
 *           CALL_TWICE      who was woken comes, also when another has taken the call
 *           SHUT_LATE       who was woken leaves the inbox open until it has looked
 *           CHAIN_BROKEN    who comes does not bring the next
 *           LAUNCH_ONCE     who has started a thread does not look whether more are wanted
 *           OPEN_ALONE      the inbox is open while a thread stands by and none is active
 *           STANDBY_BLIND   who stands by never looks
 *           STANDBY_NARROW  who stands by takes over for the queue, not for what is in the inbox
 *           STANDBY_GONE    who stands by ends the mode, and never takes over
 *           STANDBY_OPEN    who stands by ends the mode, and leaves the inbox open
 *           STANDBY_NONE    a spare loop parks, and nobody stands by
 *           STANDBY_CALLED  who stands by still does so when it has taken a call
 *           STANDBY_KEPT    when leaves are brief no longer, the standby is not called off
 *           STANDBY_SHUT    the same, and it is called off with the inbox left open
 *           STANDBY_BRIEF   who takes over does not end the time of brief leaves
 *           ALONE_SPARE     a loop is spare when another slot took the newest job, also alone
 *           NOT_BACK        who is dismissed goes though jobs wait
 *           ANNOUNCED_LATE  a thread announces itself after it has freed the lock
 *           NOT_DISMISSED   the lane's end does not wake who is parked
 *           FREED_EARLY     the lane's end does not wait until all is quiet
 *           UNJOINED        a thread that leaves does not join the one before it
 *           UNCAPPED        a loop is brought at the cap as well */

#ifndef CAP
#define CAP 2
#endif
#ifndef PLACES
#define PLACES 4
#endif
#ifndef JOBS
#define JOBS 3
#endif
#ifndef CALLS
#define CALLS 2
#endif
#ifndef WARM
#define WARM 0
#endif
#ifndef TOGETHER
#define TOGETHER 0
#endif
#define JOBS_MAX  4
#define STARTS    8 /* more than are ever tried: asserted */
#define NO_THREAD STARTS

#ifdef POOL
#define DEDICATED 0
#else
#define DEDICATED 1
#endif

/* the inbox's word: a job may be pushed only on OPEN */
#define SHUT   0
#define OPEN   1
#define CLOSED 2

/* how brief leaves are: whether `briefness` in lane.c is 0, less than BRIEF_ENOUGH, or that */
#define LONG  0
#define MIXED 1
#define BRIEF 2
#ifndef LEVEL
#define LEVEL LONG
#endif
#ifdef POOL /* which never asks */
#define STEADY
#endif
#if defined(STEADY) && LEVEL != BRIEF
#define NEVER_BRIEF
#endif

/* where a job is */
#define IDLE    0
#define CLAIMED 1 /* on its way to the inbox or the queue */
#define POSTED  2 /* in the inbox */
#define QUEUED  3
#define RUNNING 4

bool locked;
byte inbox = SHUT;
byte stage[JOBS_MAX];
byte places; /* in use */

/* guarded by the lock */
byte queued;
byte loops; /* `active` in lane.c: a word of Promela */
byte coming;
byte busy;
byte threads;
byte parked;
byte slots; /* in use */
byte ended = NO_THREAD;
byte calls;
byte level = LEVEL;
byte standby = NO_THREAD;
bool fresh; /* a job was taken to be run since the standby has looked */
byte taker = NO_THREAD; /* took the newest job; NO_THREAD: nobody, or one that has left since */
bool launching;
bool spinning;
bool closing;
bool closer_waits;
bool closer_woken;

/* the event count, as its users see it */
bool announced[STARTS];
bool lies[STARTS];
bool moved[STARTS]; /* or woken */

/* for the checks only */
byte starts;
bool alive[STARTS];
bool within[STARTS];
byte users = 2; /* calls into the lane by others than its loops; and submits by done() */
byte running;
byte accepted[JOBS_MAX];
byte runs[JOBS_MAX];
byte dones[JOBS_MAX];
bool over[JOBS_MAX]; /* refused, or cancelled */
bool freed;

#define POSTED_ANY                                                                                 \
    (stage[0] == POSTED || stage[1] == POSTED || stage[2] == POSTED || stage[3] == POSTED)
#define STANDS_BY (standby != NO_THREAD)
#define AWAITED (loops == CAP || (DEDICATED && (coming > 0 || (STANDS_BY && loops > 0))))
#ifdef OPEN_ALONE
#define OPENS (AWAITED || STANDS_BY)
#else
#define OPENS AWAITED
#endif
#define QUIET (loops == 0 && threads == 0)
#define ALL_DONE                                                                                   \
    (dones[0] == accepted[0] && dones[1] == accepted[1] && dones[2] == accepted[2] &&              \
     dones[3] == accepted[3])
#define STARTED(j) (j >= TOGETHER || runs[j] > 0 || over[j])
#ifdef UNCAPPED
#define BELOW_CAP true
#else
#define BELOW_CAP (loops < CAP)
#endif
#define LOOP_WANTED(own)                                                                           \
    (queued > coming + own && BELOW_CAP &&                                                         \
     (!DEDICATED || (!(loops > 0 && STANDS_BY) &&                                                  \
                     (((own == 0 || level > LONG) && coming == 0) ||                               \
                      (own > 0 && level == LONG && (parked == 0 || calls < CALLS))))))
#define ARE_BRIEF (DEDICATED && level == BRIEF && !closing)
#ifdef ALONE_SPARE
#define SPARE (ARE_BRIEF && taker != me)
#else
#define SPARE (ARE_BRIEF && loops > coming + 1 && taker != me && taker != NO_THREAD)
#endif

inline check()
{
    assert(!freed);
    assert(!(queued > 0 || POSTED_ANY) || loops > 0);
    assert(busy <= loops && loops <= CAP && coming <= loops);
    assert(inbox != OPEN || AWAITED);
    assert(!STANDS_BY || parked + calls > 0);
    assert(!STANDS_BY || level == BRIEF || closing);
    assert(calls <= CALLS);
    assert(parked + loops <= threads || !DEDICATED);
    assert(queued <= PLACES)
}

#define LOCK atomic { !locked -> locked = true; assert(!freed) }

inline unlock()
{
    d_step {
        check();
        locked = false
    }
}

inline enqueue(j)
{
    stage[j] = QUEUED;
    queued++
}

inline posted_queue()
{
    i = 0;
    do
    :: i < JOBS ->
        if
        :: stage[i] == POSTED -> enqueue(i)
        :: else
        fi;
        i++
    :: else -> break
    od;
    i = 0
}

inline take_in()
{
    d_step {
        posted_queue()
    }
}

/* One exchange. */
inline settle()
{
#ifdef SHUT_APART
    take_in();
    d_step {
        if
        :: closing -> inbox = CLOSED
        :: !closing && OPENS -> inbox = OPEN
        :: else -> inbox = SHUT
        fi
    }
#else
    d_step {
        if
        :: closing -> inbox = CLOSED
        :: !closing && OPENS -> inbox = OPEN
        :: else -> inbox = SHUT
        fi;
        if
        :: inbox != OPEN -> posted_queue()
        :: else
        fi
    }
#endif
}

/* Called under the lock; but for the lock, notify_one of the event count. */
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

inline thread_call()
{
    calls++;
    parked--;
    loops++;
    coming++;
    choose_one()
}

inline reserve()
{
    slots++;
    assert(slots <= CAP);
    loops++;
    coming++;
    threads = threads + DEDICATED
}

inline roll_back()
{
#ifdef NO_ROLL_BACK
    skip
#else
    slots--;
    loops--;
    coming--;
    threads = threads - DEDICATED;
    quiet_check()
#endif
}

/* `failed` becomes whether the thread, or the place in the pool's queue, could not be had. */
inline launch()
{
    if
    :: failed = false;
        assert(starts < STARTS);
        alive[starts] = DEDICATED;
        starts++;
        run loop(starts - 1)
#ifdef STARTS_FAIL
    :: failed = true
#endif
    fi
}

inline quiet_check()
{
    if
    :: closer_waits && QUIET ->
        closer_waits = false;
        closer_woken = true
    :: else
    fi
}

inline finish(j) /* done() is called */
{
    d_step {
        dones[j]++;
        assert(dones[j] <= accepted[j])
    }
}

/* mw_lane_submit. `users` counts the call for as long as it may touch the lane. */
inline submit(j)
{
    if
    :: atomic { inbox == CLOSED -> over[j] = true }
    :: atomic { inbox != CLOSED && places == PLACES -> over[j] = true }
    :: atomic {
        inbox != CLOSED && places < PLACES ->
        places++;
        assert(stage[j] == IDLE);
        stage[j] = CLAIMED
    }
        if
#ifdef PUSH_APART
        :: inbox == OPEN ->
            atomic { stage[j] = POSTED; accepted[j]++ }
#else
        :: atomic { inbox == OPEN -> stage[j] = POSTED; accepted[j]++ }
#endif
        :: inbox != OPEN -> submit_locked(j)
        fi
    fi
}

inline submit_locked(j)
{
    atomic {
        LOCK;
        take_in();
        failed = false;
        enqueue(j);
        if
        :: closing || !LOOP_WANTED(0)
        :: !closing && LOOP_WANTED(0) && parked > 0 -> thread_call()
        :: !closing && LOOP_WANTED(0) && parked == 0 ->
            reserve();
            launch();
            if
            :: failed -> roll_back()
            :: else
            fi
        fi;
        if
        :: closing || (failed && loops == 0) ->
            queued--;
            stage[j] = IDLE;
            over[j] = true;
            places--
        :: else -> accepted[j]++
        fi;
        failed = false
    }
    atomic {
        settle();
        unlock()
    }
}

#ifdef NEVER_BRIEF
#define NOTE_TAKER skip
#else
#define NOTE_TAKER taker = me
#endif
#define TAKE(j)                                                                                    \
    stage[j] == QUEUED -> stage[j] = RUNNING; queued--; places--; busy++; job = j; NOTE_TAKER;     \
        fresh = STANDS_BY

/* A leaf has ended, and tells how brief leaves are of late. */
inline count_briefness()
{
    if
    :: true
#ifndef STEADY
    :: level == LONG -> level = MIXED
    :: level == MIXED -> level = BRIEF
    :: level == MIXED -> level = LONG
    :: level == BRIEF ->
        level = MIXED;
        if
        :: !closing ->
#ifndef STANDBY_KEPT
            standby = NO_THREAD;
            fresh = false;
#endif
            take_in();
            if
            :: LOOP_WANTED(1) && parked > 0 -> thread_call()
            :: else
            fi;
#ifndef STANDBY_SHUT
            settle()
#endif
        :: else
        fi
#endif
    fi
}

proctype loop(byte me)
{
    byte job, i;
    bool failed, spun, watches, takes_over;

    atomic {
        LOCK;
#ifndef NEVER_BRIEF
        if
        :: false
        :: true
        fi
#endif
    }
#if WARM > 0
    if
    :: me < WARM -> goto park
    :: else
    fi;
#endif
arrive:
    atomic {
        within[me] = true; coming--;
#ifndef SHUT_LATE
        settle();
#endif
    }
bring:
    atomic {
        take_in();
bring_next:
        if
#ifndef CHAIN_BROKEN
        :: !SPARE && LOOP_WANTED(1) && parked > 0 -> thread_call(); goto bring_next
        :: !SPARE && LOOP_WANTED(1) && parked == 0 && !launching -> launching = true; reserve()
#endif
        :: else -> goto arrived
        fi
    }
    atomic {
        settle();
        unlock()
    }
    atomic { launch() }
    atomic {
        LOCK;
        launching = false;
        takes_over = false;
        if
        :: failed -> failed = false; take_in(); roll_back()
#ifdef LAUNCH_ONCE
        :: else
#else
        :: else -> goto bring
#endif
        fi
    }
arrived:
    atomic {
        settle();
        if
        :: spun && queued == 0 -> spun = false; goto end_loop
        :: else -> spun = false
        fi
    }

next_job:
    atomic {
        if
        :: SPARE -> goto stand_down
        :: !SPARE -> take_in()
        :: !SPARE && level == BRIEF && queued > 0 /* it looks at the inbox only now and then */
        fi;
        if
        :: TAKE(0)
        :: TAKE(1)
        :: TAKE(2)
        :: TAKE(3)
#ifndef POOL
        :: queued == 0 && !spinning && !closing -> goto spin
        :: queued == 0 && (spinning || closing) -> goto end_loop
#else
        :: queued == 0 -> goto end_loop
#endif
        fi;
        takes_over = false;
        unlock()
    }
    atomic {
        runs[job]++;
        running++;
        assert(running <= CAP)
    }
#if TOGETHER > 0
    (job >= TOGETHER || (STARTED(0) && STARTED(1) && STARTED(2)));
#endif
    atomic {
        running--;
        stage[job] = IDLE /* job_let_go, without the lock */
    }
    finish(job);
#ifdef AGAIN
    if
    :: job == 0 && accepted[0] == 1 -> submit(0)
    :: else
    fi;
#endif
    atomic {
        LOCK;
        job = 0;
        busy--;
        count_briefness();
#ifdef POOL
        take_in();
        if
        :: queued > 0 -> /* yield: another worker goes on with this loop */
            coming++;
            launch();
            if
            :: failed -> coming--; failed = false
            :: else -> unlock(); goto gone
            fi
        :: true
        fi
#endif
    }
    goto next_job;

#ifndef POOL
spin:
    spun = true;
    spinning = true;
    atomic { coming++; within[me] = false }
    atomic {
        settle();
        unlock()
    }
    atomic { LOCK; spinning = false } /* it saw a job, or its time is up */
    goto arrive;
#endif

stand_down:
    atomic {
        within[me] = false; assert(taker == NO_THREAD || within[taker] || coming > 0 || queued == 0);
        assert(!takes_over); /* or it would go round for ever */
        loops--;
#ifndef STANDBY_NONE
        if
        :: !STANDS_BY -> standby = me; fresh = false
        :: else
        fi;
#endif
        goto to_park
    }

end_loop:
    atomic { loops--; within[me] = false }
    settle();
    atomic {
#ifndef END_UNCHECKED
        if
        :: queued > 0 -> loops++; within[me] = true; goto next_job
        :: else -> if :: taker == me -> taker = NO_THREAD :: else fi
        fi;
#endif
#ifdef POOL
        slots--;
        quiet_check();
        unlock();
        goto gone
#else
        skip
#endif
    }

to_park:
#ifndef POOL
    parked++;
    settle();
park:
    atomic {
        if
        :: calls > 0 || closing -> goto get_up
        :: else
        fi;
        watches = standby == me;
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
#ifndef STANDBY_BLIND
    :: atomic {
        lies[me] && watches ->
        lies[me] = false;
        announced[me] = false
    }
        goto watch
#endif
#ifndef NO_LINGER
    :: atomic { lies[me] && !watches -> lies[me] = false; announced[me] = false } /* time is up */
#endif
    fi;
#ifdef CALL_OWN
    atomic { LOCK; parked--; goto leave }
#else
    atomic { LOCK; goto get_up }
#endif
woken:
#ifdef CALL_TWICE
    atomic {
        LOCK;
        if
        :: calls == 0 && !closing -> goto arrive
        :: else -> goto park
        fi
    }
#else
    atomic { LOCK; goto park }
#endif

watch:
    atomic {
        LOCK;
        if
        :: standby != me -> goto park
        :: else
        fi;
        takes_over = !fresh && loops > 0; /* it is stuck */
        fresh = false;
#ifdef STANDBY_NARROW
        spun = queued > coming;
#endif
        take_in();
        if
#ifndef STANDBY_BRIEF
        :: takes_over -> level = LONG
#endif
        :: else
        fi;
        if
        :: takes_over || loops == 0 ->
            standby = NO_THREAD;
#ifndef STANDBY_OPEN
            settle()
#endif
        :: else
        fi;
#if defined(STANDBY_NARROW)
        takes_over = takes_over && spun;
        spun = false;
#elif defined(STANDBY_GONE)
        takes_over = false;
#else
        takes_over = takes_over && queued > coming;
#endif
        if
        :: takes_over -> goto get_up
        :: else -> goto park
        fi
    }

get_up:
    atomic {
        watches = false;
        if
#ifndef STANDBY_CALLED
        :: standby == me -> standby = NO_THREAD; fresh = false
#endif
        :: else
        fi;
        if
        :: calls > 0 -> /* whomever it was meant for */
#ifdef CALLS_LOST
            calls = 0;
#else
#ifndef CALL_KEPT
            calls--;
#endif
#endif
            goto arrive
        :: else -> parked--
        fi;
        if
#ifdef NOT_BACK
        :: takes_over ->
#else
        :: takes_over || (closing && queued > coming) ->
#endif
            loops++;
            coming++;
            goto arrive
        :: else
        fi
    }
leave:
    atomic {
        threads--;
        slots--;
        if
        :: taker == me -> taker = NO_THREAD
        :: else
        fi;
        job = ended;
        ended = me;
        quiet_check();
        unlock()
    }
#ifndef UNJOINED
    (job == NO_THREAD || !alive[job]);
#endif
    alive[me] = false;
#endif
gone:
    skip
}

proctype submitter(byte first, last)
{
    byte job, i;
    bool failed;

    job = first;
    do
    :: job <= last -> submit(job); job++
    :: else -> break
    od;
    users--
}

#ifdef CANCEL
proctype canceller()
{
    byte i;
    bool found;

    atomic {
        LOCK;
        take_in();
        found = stage[1] == QUEUED;
#ifndef DONE_EARLY
        if
        :: found -> stage[1] = IDLE; queued--; places--; over[1] = true
        :: else
        fi;
#endif
        unlock()
    }
    if
    :: found -> finish(1)
    :: else
    fi;
#ifdef DONE_EARLY
    atomic {
        LOCK;
        if
        :: found && stage[1] == QUEUED -> stage[1] = IDLE; queued--; places--
        :: else
        fi;
        unlock()
    }
#endif
    users--
}
#endif

/* mw_lane_free, at any time or when all is quiet. */
active proctype closer()
{
    byte i;
    bool quiet, dropped[JOBS_MAX];

#if WARM > 0
    starts >= WARM; /* init has been */
#endif
    if
#ifndef LATE
    :: true
#endif
    :: timeout -> assert(ALL_DONE)
    fi;
    atomic {
        LOCK;
        closing = true
    }
    atomic {
        settle();
#ifdef CANCEL
        do
        :: i < JOBS ->
            if
            :: stage[i] == QUEUED ->
                dropped[i] = true;
#ifndef DONE_TWICE
                stage[i] = IDLE;
                over[i] = true;
                queued--;
                places--
#endif
            :: else
            fi;
            i++
        :: else -> break
        od;
        i = 0;
#endif
#ifndef NOT_DISMISSED
        if
        :: parked > 0 -> choose_all()
        :: else
        fi;
#endif
        unlock()
    }
#ifdef CANCEL
    do
    :: i < JOBS ->
        if
        :: dropped[i] -> finish(i); dropped[i] = false
        :: else
        fi;
        i++
    :: else -> break
    od;
    i = 0;
#endif
#ifndef FREED_EARLY
    atomic {
        LOCK;
        quiet = QUIET;
        closer_waits = !quiet;
        unlock()
    }
    if
    :: quiet
    :: !quiet -> closer_woken
    fi;
    atomic { LOCK; unlock() }
    (ended == NO_THREAD || !alive[ended]);
#endif
    users == 0; /* nobody calls any more: the host's part */
    atomic {
        freed = true;
        assert(ALL_DONE);
        assert(queued == 0 && !POSTED_ANY && loops == 0 && running == 0);
        assert(!alive[0] && !alive[1] && !alive[2] && !alive[3]);
        assert(!alive[4] && !alive[5] && !alive[6] && !alive[7]);
        assert(runs[0] <= accepted[0] && runs[1] <= accepted[1] && runs[2] <= accepted[2]);
        assert(runs[3] <= accepted[3])
    }
}

init
{
    atomic {
#if WARM > 0
        threads = WARM;
        slots = WARM;
        parked = WARM;
        do
        :: starts < WARM ->
            alive[starts] = true;
            starts++;
            run loop(starts - 1)
        :: else -> break
        od;
#endif
        run submitter(0, 1);
        run submitter(2, JOBS - 1);
#ifdef CANCEL
        users++;
        run canceller()
#endif
    }
}
