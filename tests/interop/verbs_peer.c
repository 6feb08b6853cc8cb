/*
 * A peer of hostd over libibverbs, which does what it is told over TCP: one command a line, one
 * line of answer each. Runs in the guest, on Soft-RoCE.
 *
 *   verbs_peer PORT GID_INDEX MTU
 *
 * The first two lines are "QPN PSN ADDRESS RKEY" of each side, the other side's with its GID in
 * hexadecimal in front. Then:
 *
 *   post LEN                        a receive into the buffer
 *   fill OFFSET LEN SEED            a pattern into the buffer
 *   check OFFSET LEN SEED           whether it is there
 *   do OP LEN IMM REMOTE RKEY A B   a request from or into the buffer; waits for its completion
 *   wait                            for a receive: its opcode, length and immediate data
 *   word OFFSET                     eight bytes of the buffer as a number
 */
#include <arpa/inet.h>
#include <endian.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BUFFER (20u << 20)
#define RECEIVE 1
#define REQUEST 2
#define SECONDS 60

static struct ibv_qp *qp;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static uint8_t *buffer;
/* A completion of a receive that came while another one was waited for. */
static struct ibv_wc early[64];
static int earlies;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static uint8_t pattern(uint64_t n, uint32_t seed)
{
	return (uint8_t)((n * 7 + (n >> 8) * 13 + seed * 131) & 0xff);
}

/* Waits for the completion of `id`; 0 when it comes. */
static int completion(uint64_t id, struct ibv_wc *wc)
{
	time_t end = time(NULL) + SECONDS;
	if (id == RECEIVE && earlies > 0) {
		*wc = early[0];
		memmove(early, early + 1, (size_t)--earlies * sizeof *early);
		return 0;
	}
	while (time(NULL) < end) {
		int n = ibv_poll_cq(cq, 1, wc);
		if (n < 0)
			fail("ibv_poll_cq");
		if (n == 1 && wc->wr_id == id)
			return 0;
		if (n == 1 && earlies < 64)
			early[earlies++] = *wc;
	}
	return 1;
}

static void request(FILE *out, const char *line)
{
	static const struct {
		const char *name;
		enum ibv_wr_opcode opcode;
	} names[] = {
		{"send", IBV_WR_SEND},
		{"send_imm", IBV_WR_SEND_WITH_IMM},
		{"write", IBV_WR_RDMA_WRITE},
		{"write_imm", IBV_WR_RDMA_WRITE_WITH_IMM},
		{"read", IBV_WR_RDMA_READ},
		{"cas", IBV_WR_ATOMIC_CMP_AND_SWP},
		{"faa", IBV_WR_ATOMIC_FETCH_AND_ADD},
	};
	char name[16];
	uint32_t len, imm, rkey;
	uint64_t remote, a, b;
	struct ibv_send_wr wr = {.wr_id = REQUEST, .send_flags = IBV_SEND_SIGNALED}, *bad;
	struct ibv_sge sge = {.addr = (uintptr_t)buffer, .lkey = mr->lkey};
	struct ibv_wc wc;
	size_t i;

	if (sscanf(line, "do %15s %u %u %" SCNu64 " %u %" SCNu64 " %" SCNu64, name, &len, &imm,
		   &remote, &rkey, &a, &b) != 7) {
		fprintf(out, "what?\n");
		return;
	}
	for (i = 0; i < sizeof names / sizeof *names; i++)
		if (strcmp(names[i].name, name) == 0)
			break;
	if (i == sizeof names / sizeof *names) {
		fprintf(out, "what?\n");
		return;
	}
	wr.opcode = names[i].opcode;
	wr.imm_data = htonl(imm);
	sge.length = len;
	wr.sg_list = &sge;
	wr.num_sge = len > 0;
	if (wr.opcode >= IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = remote;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = a;
		wr.wr.atomic.swap = b;
	} else {
		wr.wr.rdma.remote_addr = remote;
		wr.wr.rdma.rkey = rkey;
	}
	if (ibv_post_send(qp, &wr, &bad))
		fail("ibv_post_send");
	if (completion(REQUEST, &wc))
		fprintf(out, "nothing\n");
	else
		fprintf(out, "%s\n", ibv_wc_status_str(wc.status));
}

static void command(FILE *out, const char *line)
{
	uint32_t offset, len, seed;
	if (sscanf(line, "post %u", &len) == 1) {
		struct ibv_sge sge = {.addr = (uintptr_t)buffer, .length = len, .lkey = mr->lkey};
		struct ibv_recv_wr wr = {.wr_id = RECEIVE, .sg_list = &sge, .num_sge = len > 0}, *bad;
		if (ibv_post_recv(qp, &wr, &bad))
			fail("ibv_post_recv");
		fprintf(out, "ok\n");
	} else if (sscanf(line, "fill %u %u %u", &offset, &len, &seed) == 3) {
		for (uint32_t n = 0; n < len; n++)
			buffer[offset + n] = pattern(n, seed);
		fprintf(out, "ok\n");
	} else if (sscanf(line, "check %u %u %u", &offset, &len, &seed) == 3) {
		for (uint32_t n = 0; n < len; n++)
			if (buffer[offset + n] != pattern(n, seed)) {
				fprintf(out, "byte %u is %u\n", n, buffer[offset + n]);
				return;
			}
		fprintf(out, "ok\n");
	} else if (strncmp(line, "do ", 3) == 0) {
		request(out, line);
	} else if (sscanf(line, "word %u", &offset) == 1) {
		uint64_t word;
		memcpy(&word, buffer + offset, sizeof word);
		fprintf(out, "%" PRIu64 "\n", word);
	} else if (strncmp(line, "wait", 4) == 0) {
		struct ibv_wc wc;
		if (completion(RECEIVE, &wc))
			fprintf(out, "nothing\n");
		else if (wc.status != IBV_WC_SUCCESS)
			fprintf(out, "%s\n", ibv_wc_status_str(wc.status));
		else
			fprintf(out, "%d %u %u\n", wc.opcode, wc.byte_len,
				wc.wc_flags & IBV_WC_WITH_IMM ? ntohl(wc.imm_data) : 0);
	} else {
		fprintf(out, "what?\n");
	}
}

static void ready(const char *line, int index, int mtu, uint32_t psn)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_256};
	char gid[33];
	unsigned qpn, peer_psn;
	if (sscanf(line, "%32s %u %u", gid, &qpn, &peer_psn) != 3)
		fail("what the peer tells");
	for (int bytes = 256; bytes < mtu; bytes *= 2)
		attr.path_mtu++;
	attr.dest_qp_num = qpn;
	attr.rq_psn = peer_psn;
	attr.max_dest_rd_atomic = 4;
	attr.min_rnr_timer = 12;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.grh.hop_limit = 64;
	attr.ah_attr.grh.sgid_index = (uint8_t)index;
	for (int n = 0; n < 16; n++) {
		unsigned byte;
		sscanf(gid + 2 * n, "%2x", &byte);
		attr.ah_attr.grh.dgid.raw[n] = (uint8_t)byte;
	}
	if (ibv_modify_qp(qp, &attr,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				  IBV_QP_MIN_RNR_TIMER))
		fail("RTR");
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	attr.sq_psn = psn;
	attr.max_rd_atomic = 4;
	if (ibv_modify_qp(qp, &attr,
			  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		fail("RTS");
}

static void set_up(void)
{
	int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		     IBV_ACCESS_REMOTE_ATOMIC;
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *context = devices && *devices ? ibv_open_device(*devices) : NULL;
	struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 16, .max_recv_wr = 64, .max_send_sge = 1, .max_recv_sge = 1},
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = (unsigned)rights};
	buffer = aligned_alloc(4096, BUFFER);
	if (!pd || !buffer)
		fail("device");
	memset(buffer, 0, BUFFER);
	mr = ibv_reg_mr(pd, buffer, BUFFER, rights);
	cq = ibv_create_cq(context, 128, NULL, NULL, 0);
	init.send_cq = init.recv_cq = cq;
	qp = mr && cq ? ibv_create_qp(pd, &init) : NULL;
	if (!qp)
		fail("objects");
	if (ibv_modify_qp(qp, &attr,
			  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		fail("INIT");
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1, stream;
	/* Near the end, so that the numbers wrap. */
	uint32_t psn = 0xffff80;
	char line[256];
	FILE *in, *out;

	if (argc != 4)
		return 2;
	set_up();
	address.sin_port = htons((uint16_t)atoi(argv[1]));
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 1))
		fail("listen");
	stream = accept(listener, NULL, NULL);
	if (stream < 0)
		fail("accept");
	in = fdopen(stream, "r");
	out = fdopen(dup(stream), "w");
	setvbuf(out, NULL, _IOLBF, 0);
	if (!fgets(line, sizeof line, in))
		fail("the peer's numbers");
	ready(line, atoi(argv[2]), atoi(argv[3]), psn);
	fprintf(out, "%u %u %" PRIu64 " %u\n", qp->qp_num, psn, (uint64_t)(uintptr_t)buffer,
		mr->rkey);
	while (fgets(line, sizeof line, in))
		command(out, line);
	return 0;
}
