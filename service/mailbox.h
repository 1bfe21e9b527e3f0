/* mailbox.h - how other threads hand work back to the loop's thread.
 *
 * Ownership:  a post is the caller's, lent from mw_mailbox_post until its fn is called.
 * Threads:    post from any thread; init, close and every fn on the loop's thread.
 * Bounds:     none of its own: a post belongs to a step that its lane has already bounded. */
#ifndef MW_SERVICE_MAILBOX_H
#define MW_SERVICE_MAILBOX_H

#include <uv.h>

#include <millwright/mutex.h>

struct mw_post {
    void (*fn)(struct mw_post *post);
    struct mw_post *next;
};

struct mw_mailbox {
    uv_async_t async;
    struct mw_mutex lock; /* guards head and tail */
    struct mw_post *head;
    struct mw_post *tail;
};

/* Returns 0 or a negative errno. Keeps the loop alive until mw_mailbox_close. */
int mw_mailbox_init(struct mw_mailbox *mailbox, uv_loop_t *loop);

/* Call post->fn on the loop's thread, soon; posts arrive in the order they were made. */
void mw_mailbox_post(struct mw_mailbox *mailbox, struct mw_post *post);

/* No post may come any more. The storage is free again when the loop has turned once. */
void mw_mailbox_close(struct mw_mailbox *mailbox);

#endif
