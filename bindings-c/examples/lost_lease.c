/* A lease that is lost: an event loop hears of it through a file descriptor, and the resource turns the late write away.
 * Here the example itself plays the operator who takes the lock away. */
#include <onelock.h>
#include <poll.h>
#include <stdio.h>

static void on_lost(onelock_lease *lease, uint32_t reason, void *user_data) {
    (void)lease;
    (void)user_data;
    /* on a thread kept for callbacks; no more than telling the others to stop */
    printf("callback: lost, %s\n", onelock_loss_name(reason));
}

int main(void) {
    onelock_error *error = NULL;
    onelock_client *client = NULL;
    onelock_lock_options *options = onelock_lock_options_new();
    onelock_lock *lock = NULL;
    onelock_lease *lease = NULL, *next = NULL;
    onelock_gate *gate = onelock_gate_new(0); /* beside the protected resource */
    int result = 1, fd = -1;

    if (onelock_client_connect(NULL, NULL, &client, &error) != ONELOCK_OK) goto done;
    if (onelock_lock_options_set_ttl(options, 600, &error) != ONELOCK_OK) goto done;
    if (onelock_lock_new_str(client, ONELOCK_KIND_MUTEX, "example:lost", options, &lock, &error) != ONELOCK_OK) goto done;
    if (onelock_lock_acquire(lock, 5000, NULL, &lease, &error) != ONELOCK_OK) goto done;
    if (onelock_lease_on_lost(lease, on_lost, NULL, &error) != ONELOCK_OK) goto done;
    if (onelock_lease_lost_fd(lease, &fd, &error) != ONELOCK_OK) goto done;

    if (onelock_client_force_release(client, "example:lost", 12, NULL, &error) != ONELOCK_OK) goto done;
    if (onelock_lock_acquire(lock, 5000, NULL, &next, &error) != ONELOCK_OK) goto done;
    onelock_gate_admit(gate, onelock_lease_fencing_token(next));

    /* until the next renewal the old holder believes in its lease; the resource does not */
    if (onelock_gate_admit(gate, onelock_lease_fencing_token(lease))) goto done;
    printf("the resource turned the old holder away\n");

    struct pollfd wait = {fd, POLLIN, 0};
    if (poll(&wait, 1, 5000) != 1) goto done;
    printf("event loop: lost, %s\n", onelock_loss_name(onelock_lease_loss(lease)));
    if (!onelock_lease_is_held(lease)) result = 0;

done:
    if (error != NULL) fprintf(stderr, "%s\n", onelock_error_message(error));
    onelock_error_free(error);
    onelock_lease_free(next);
    onelock_lease_free(lease);
    onelock_lock_free(lock);
    onelock_lock_options_free(options);
    onelock_gate_free(gate);
    onelock_client_free(client);
    return result;
}
