/* event_count.pml - a model of pools/event_count.c on a machine with store buffers.
 *
 * Producers publish items and notify; waiters take items, and sleep when they find none. When
 * everything is quiet no item may be left (a lost wake-up), and a waiter is announced at most
 * once, and taken off the count exactly once for it. Then a notify_all tells that it is over, and
 * everybody must leave.
 *
 * The machine: a producer's publication, and the addition by which a waiter announces itself, may
 * reach memory later than the same thread's next loads, until a fence or a release makes them. An
 * addition is atomic where it reaches memory, so the epoch that it returns is the one there. The
 * other operations on the state word are done under the lock, whose release waits for them, or
 * hurt nobody by being late (a waiter that takes its own announcement back).
 * A step in `atomic` is one critical section of the event count's lock, or one atomic operation.
 *
 * Sizes:    WAITERS, PRODUCERS, EACH (items of each producer), TIMEOUTS (of each waiter)
 * Variants: CEILING=n       notify_one wakes nobody while n are awake
 *           NOTIFY_ALL      the last producer uses notify_all
 *           HELD            who took an item holds it until all are taken
 *           LATE_KEY        the epoch is read after the fence, by an ordered (acquire) load
 * Mutants, to be found wrong:
 *           NO_WAITER_FENCE, NO_NOTIFIER_FENCE
 *           LATE_KEY with REORDERED_LOADS   the epoch read by a relaxed load after the fence
 *           EPOCH_KEPT      a notification does not move the epoch
 *           GET_UP_BLINDLY  a waiter whose time is up does not look whether it was taken
 *           CEILING=0, CEILING with HELD    a wake is withheld though nobody will look again */

#ifndef WAITERS
#define WAITERS 2
#endif
#ifndef PRODUCERS
#define PRODUCERS 2
#endif
#ifndef EACH
#define EACH 2
#endif
#ifndef TIMEOUTS
#define TIMEOUTS 0
#endif
#define ITEMS (PRODUCERS * EACH)
#define NOBODY WAITERS

/* memory */
byte published; /* items, all producers' */
byte taken;
byte epoch;
byte waiters;
bool closed;
bool woken[WAITERS]; /* their futexes */

/* guarded by the event count's lock: the sleepers, newest last */
byte sleepers[WAITERS];
byte depth;

/* store buffers: what was executed and has not reached memory */
bool publishing[PRODUCERS];
bool announcing[WAITERS];
byte key[WAITERS]; /* what the addition returned, when it got there */

/* for the checks only */
bool counted[WAITERS];
byte left;

#define WORK         (published > taken || closed)
#define FENCE(store) !store /* passable once the store is in memory */

inline announcement_lands(w)
{
    d_step {
        assert(!counted[w]);
        counted[w] = true;
        waiters++;
        key[w] = epoch;
        announcing[w] = false;
    }
}

inline take_off(w)
{
    assert(counted[w] && waiters > 0);
    counted[w] = false;
    waiters--;
}

inline move_epoch()
{
#ifdef EPOCH_KEPT
    skip
#else
    epoch++
#endif
}

inline wake(w)
{
    assert(!woken[w]);
    woken[w] = true;
}

/* `found` becomes whether `w` was on the list. */
inline unlist(w, found, i)
{
    d_step {
        found = false;
        i = 0;
        do
        :: i < depth && found -> sleepers[i - 1] = sleepers[i]; i++
        :: i < depth && !found -> found = sleepers[i] == w; i++
        :: i == depth -> break
        od;
        if
        :: found -> depth--; sleepers[depth] = 0
        :: else
        fi;
        i = 0
    }
}

active proctype memory()
{
    byte i;

end:
    do
    :: atomic { publishing[0] -> published++; publishing[0] = false }
#if PRODUCERS > 1
    :: atomic { publishing[1] -> published++; publishing[1] = false }
#endif
    :: atomic { announcing[0] -> announcement_lands(0) }
#if WAITERS > 1
    :: atomic { announcing[1] -> announcement_lands(1) }
#endif
#if WAITERS > 2
    :: atomic { announcing[2] -> announcement_lands(2) }
#endif
    od
}

inline notify_one(p)
{
#ifndef NO_NOTIFIER_FENCE
    FENCE(publishing[p]);
#endif
    seen = waiters;
    if
    :: seen == 0
#ifdef CEILING
    :: seen > 0 && WAITERS - seen >= CEILING
    :: seen > 0 && WAITERS - seen < CEILING ->
#else
    :: seen > 0 ->
#endif
        atomic {
            FENCE(publishing[p]); /* the addition is a release */
            chosen = NOBODY;
            if
            :: depth > 0 ->
                depth--;
                chosen = sleepers[depth];
                sleepers[depth] = 0;
                take_off(chosen)
            :: else
            fi;
            move_epoch()
        }
        if
        :: chosen != NOBODY -> wake(chosen)
        :: else
        fi
    fi;
    seen = 0;
    chosen = 0
}

/* The wakes after the unlock are one step: each is seen by its own waiter only. */
inline notify_all(p)
{
    FENCE(publishing[p]);
    if
    :: waiters == 0
    :: atomic {
        waiters > 0 ->
        do
        :: depth > 0 ->
            depth--;
            take_off(sleepers[depth]);
            wake(sleepers[depth]);
            sleepers[depth] = 0
        :: else -> break
        od;
        move_epoch()
    }
    fi
}

proctype producer(byte me)
{
    byte i, seen, chosen;

    do
    :: i < EACH ->
        atomic { FENCE(publishing[me]); publishing[me] = true; i++ } /* one entry is enough */
#ifdef NOTIFY_ALL
        if
        :: me == PRODUCERS - 1 -> notify_all(me)
        :: else -> notify_one(me)
        fi
#else
        notify_one(me)
#endif
    :: else -> break
    od
}

inline prepare_and_look(w)
{
#ifdef LATE_KEY
    FENCE(announcing[w]);
    if
    :: late_key = epoch; work = WORK
#ifdef REORDERED_LOADS
    :: work = WORK; late_key = epoch
#endif
    fi;
    atomic { key[w] = late_key; late_key = 0 }
#else
#ifndef NO_WAITER_FENCE
    FENCE(announcing[w]);
#endif
    work = WORK;
    FENCE(announcing[w]) /* its result is used from here on */
#endif
}

proctype waiter(byte me)
{
    byte late_key, i, timeouts;
    bool work, found;

look:
    if
    :: atomic { published > taken -> taken++ }
#ifdef HELD
        taken == ITEMS;
#endif
        goto look
    :: atomic { published == taken && closed -> goto gone }
    :: atomic { published == taken && !closed -> announcing[me] = true }
    fi;
    prepare_and_look(me);
    if
    :: atomic { work -> work = false; take_off(me); goto look }
    :: atomic { /* lie_down */
        !work ->
        if
        :: epoch != key[me] -> take_off(me); key[me] = 0; goto look
        :: else -> sleepers[depth] = me; depth++; key[me] = 0
        fi
    }
    fi;
    if
    :: atomic { woken[me] -> woken[me] = false; goto look }
    :: atomic { /* time-out, get_up */
        timeouts < TIMEOUTS ->
        timeouts++;
        unlist(me, found, i);
        if
#ifdef GET_UP_BLINDLY
        :: true -> take_off(me); goto look
#else
        :: found -> found = false; take_off(me); goto look
        :: else
#endif
        fi
    }
        atomic { woken[me] -> woken[me] = false }
    fi;
    goto look;
gone:
    left++
}

/* `timeout` holds when nobody else can move. */
active proctype monitor()
{
    atomic {
        timeout ->
        assert(published == ITEMS);
        assert(taken == ITEMS); /* else a wake-up was lost */
#ifndef CEILING
        assert(waiters == WAITERS && depth == WAITERS);
#endif
        closed = true;
        publishing[0] = false
    }
    notify_all(0);
    atomic {
        timeout ->
        assert(left == WAITERS); /* else notify_all left somebody behind */
        assert(waiters == 0 && depth == 0)
    }
}

init
{
    atomic {
        run waiter(0);
#if WAITERS > 1
        run waiter(1);
#endif
#if WAITERS > 2
        run waiter(2);
#endif
        run producer(0);
#if PRODUCERS > 1
        run producer(1)
#endif
    }
}
