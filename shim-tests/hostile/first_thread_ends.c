// A process whose first thread ends, at the end of its input, while another goes on.
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static void *stays(void *unused) {
    pause();
    return unused;
}

int main(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, stays, NULL) != 0) return 1;
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF) {
    }
    pthread_exit(NULL);
}
