#include "mailbox.h"

static struct mw_post *take_all(struct mw_mailbox *mailbox);
static void on_async(uv_async_t *async);
static void on_closed(uv_handle_t *handle);

int mw_mailbox_init(struct mw_mailbox *mailbox, uv_loop_t *loop)
{
    int error = mw_mutex_init(&mailbox->lock);
    if (error)
        return error;
    mailbox->head = NULL;
    mailbox->tail = NULL;
    mailbox->async.data = mailbox;
    error = uv_async_init(loop, &mailbox->async, on_async);
    if (error)
        mw_mutex_fini(&mailbox->lock);
    return error;
}

void mw_mailbox_post(struct mw_mailbox *mailbox, struct mw_post *post)
{
    post->next = NULL;
    mw_mutex_lock(&mailbox->lock);
    if (mailbox->tail)
        mailbox->tail->next = post;
    else
        mailbox->head = post;
    mailbox->tail = post;
    /* Sent under the lock: once the loop has taken this post it may close the mailbox, and then
     * nobody may touch the handle any more. */
    uv_async_send(&mailbox->async);
    mw_mutex_unlock(&mailbox->lock);
}

void mw_mailbox_close(struct mw_mailbox *mailbox)
{
    uv_close((uv_handle_t *)&mailbox->async, on_closed);
}

static void on_async(uv_async_t *async)
{
    struct mw_post *post = take_all(async->data);
    while (post) {
        struct mw_post *next = post->next;
        post->fn(post); /* may free post */
        post = next;
    }
}

static struct mw_post *take_all(struct mw_mailbox *mailbox)
{
    mw_mutex_lock(&mailbox->lock);
    struct mw_post *head = mailbox->head;
    mailbox->head = NULL;
    mailbox->tail = NULL;
    mw_mutex_unlock(&mailbox->lock);
    return head;
}

static void on_closed(uv_handle_t *handle)
{
    struct mw_mailbox *mailbox = handle->data;
    mw_mutex_fini(&mailbox->lock);
}
