/* peer_glib.c - GLib's GThreadPool, exclusive: all its threads are started at once, and stay. */
#include <errno.h>
#include <glib.h>

#include "peer_optional.h"
#include "peers.h"

static GThreadPool *pool;

static void run(gpointer data, gpointer unused);

int peer_glib_open(const struct peer_options *options)
{
    pool = g_thread_pool_new(run, NULL, (gint)options->threads, TRUE, NULL);
    return pool == NULL ? -EAGAIN : 0;
}

int peer_glib_submit(unsigned producer, struct task *task)
{
    (void)producer;
    return g_thread_pool_push(pool, task, NULL) ? 0 : -EAGAIN;
}

static void run(gpointer data, gpointer unused)
{
    (void)unused;
    task_run(data);
}
