/* A nightly job that many machines have on their timetable: whoever comes first does it, the others go on, and so do those
 * whose clocks are late, although it is done by then. */
#include <onelock.h>
#include <stdio.h>

int main(void) {
    onelock_error *error = NULL;
    onelock_client *client = NULL;
    onelock_lock_options *options = onelock_lock_options_new();
    onelock_lock *lock = NULL;
    onelock_lease *mine = NULL, *theirs = NULL;
    onelock_status status;
    int result = 1;

    if (onelock_client_connect(NULL, NULL, &client, &error) != ONELOCK_OK) goto done;
    /* above what the machines' clocks differ by; a night is longer */
    if (onelock_lock_options_set_min_hold(options, 2000, &error) != ONELOCK_OK) goto done;
    if (onelock_lock_new_str(client, ONELOCK_KIND_MUTEX, "example:nightly", options, &lock, &error) != ONELOCK_OK) goto done;

    if (onelock_lock_try_acquire(lock, &mine, &error) != ONELOCK_OK) goto done;
    printf("first: I do it\n");

    /* the next one finds it busy, which is an answer and not a fault */
    status = onelock_lock_try_acquire(lock, &theirs, NULL);
    if (status != ONELOCK_ERR_BUSY) goto done;
    printf("second: somebody else does it\n");

    onelock_lease_release(mine, NULL, NULL);
    printf("first: done\n");
    status = onelock_lock_try_acquire(lock, &theirs, NULL);
    if (status == ONELOCK_ERR_BUSY) {
        printf("third, whose clock is late: somebody else has done it\n");
        result = 0;
    }

done:
    if (error != NULL) fprintf(stderr, "%s\n", onelock_error_message(error));
    onelock_error_free(error);
    onelock_lease_free(theirs);
    onelock_lease_free(mine); /* freed while it is held: released in the background, and before exit */
    onelock_lock_free(lock);
    onelock_lock_options_free(options);
    onelock_client_free(client);
    return result;
}
