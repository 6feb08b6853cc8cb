/*
 * A peer of hostd over libibverbs, which does what it is told over TCP: one command a line, one
 * line of answer each. Runs in the guest, on Soft-RoCE.
 *
 *   verbs_peer PORT GID_INDEX MTU BUFFER_MIB
 *
 * The first two lines are "QPN PSN ADDRESS RKEY" of each side, the other side's with its GID in
 * hexadecimal in front. Then:
 *
 *   post PIECES LEN          a receive into the buffer
 *   fill PIECES LEN SEED     a pattern into the buffer
 *   check PIECES LEN SEED    whether it is there
 *   do OP PIECES LEN IMM REMOTE RKEY A B
 *                            a request from or into the buffer; waits for its completion
 *   bind OFFSET LEN          a memory window of type 2 for the peer to write and to read; its key
 *   revoke RKEY              takes the key of a window back; waits for the completion
 *   solicited 0|1            whether requests from now on are solicited
 *   wait                     for a receive: its opcode, length, and immediate data or the key
 *                            that it took back
 *   arm 0|1                  asks for an event: of any completion, or of a solicited one
 *   event MS                 waits for it: whether it has come
 *   at OFFSET                where messages lie in the buffer from now on
 *   word OFFSET              eight bytes of the buffer as a number
 *
 * A message of several pieces has the last one in front, and gaps between them.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RECEIVE 1
#define REQUEST 2
#define SECONDS 280
#define PIECES 16u
#define GAP 24u
/*
 * Soft-RoCE up to Linux 6.1 at least passes the kernel's bit on (IB_WC_WITH_INVALIDATE), which is
 * another one than that of libibverbs.
 */
#define WITH_INV (IBV_WC_WITH_INV | 1 << 2)

static struct ibv_qp *qp;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static uint8_t *buffer;
static size_t buffer_size;
static uint32_t base;
static unsigned solicited;
/* A completion of a receive that came while another one was waited for. */
static struct ibv_wc early[64];
static int earlies;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

/* The pieces of a message; how many there are. */
static int layout(struct ibv_sge *sge, uint32_t pieces, uint32_t len)
{
	uint32_t each, last;
	if (pieces > PIECES)
		pieces = PIECES;
	if (pieces > len)
		pieces = len;
	if (pieces == 0)
		return 0;
	each = len / pieces;
	last = len - each * (pieces - 1);
	for (uint32_t i = 0; i < pieces; i++) {
		uint64_t offset = base + (uint64_t)(pieces - 1 - i) * (last + GAP);
		uint32_t length = i == pieces - 1 ? last : each;
		if (offset + length > buffer_size) {
			fprintf(stderr, "%u bytes in %u pieces do not fit\n", len, pieces);
			exit(1);
		}
		sge[i] = (struct ibv_sge){
			.addr = (uintptr_t)buffer + offset, .length = length, .lkey = mr->lkey};
	}
	return (int)pieces;
}

/*
 * Fills the pieces of a message, or compares them: a text that says what is wrong, or nothing.
 * Each row of 256 bytes is a part of the same sequence.
 */
static const char *visit(int compare, uint32_t pieces, uint32_t len, uint32_t seed)
{
	static uint8_t sequence[512];
	static char wrong[64];
	struct ibv_sge sge[PIECES];
	int count = layout(sge, pieces, len);
	uint64_t n = 0;
	for (unsigned i = 0; i < sizeof sequence; i++)
		sequence[i] = (uint8_t)(i * 7);
	for (int i = 0; i < count; i++) {
		uint8_t *at = (uint8_t *)(uintptr_t)sge[i].addr;
		uint32_t left = sge[i].length;
		while (left > 0) {
			uint32_t column = n & 255, part = 256 - column;
			uint8_t first = (uint8_t)((n >> 8) * 13 + (n >> 16) * 29 + (n >> 24) * 37 +
						  (uint64_t)seed * 131);
			/* 7 * 183 = 1 modulo 256. */
			const uint8_t *row = sequence + (uint8_t)(first * 183) + column;
			if (part > left)
				part = left;
			if (!compare) {
				memcpy(at, row, part);
			} else if (memcmp(at, row, part) != 0) {
				while (*at == *row)
					at++, row++, n++;
				snprintf(wrong, sizeof wrong, "byte %" PRIu64 " is %u, not %u", n,
					 *at, *row);
				return wrong;
			}
			at += part;
			n += part;
			left -= part;
		}
	}
	return NULL;
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
		/* Others of this program take turns on few and slow processors. */
		if (n == 0)
			usleep(200);
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
		{"send_inv", IBV_WR_SEND_WITH_INV},
		{"write", IBV_WR_RDMA_WRITE},
		{"write_imm", IBV_WR_RDMA_WRITE_WITH_IMM},
		{"read", IBV_WR_RDMA_READ},
		{"cas", IBV_WR_ATOMIC_CMP_AND_SWP},
		{"faa", IBV_WR_ATOMIC_FETCH_AND_ADD},
	};
	char name[16];
	uint32_t pieces, len, imm, rkey;
	uint64_t remote, a, b;
	struct ibv_send_wr wr = {.wr_id = REQUEST, .send_flags = IBV_SEND_SIGNALED}, *bad;
	struct ibv_sge sge[PIECES];
	struct ibv_wc wc;
	size_t i;

	if (sscanf(line, "do %15s %u %u %u %" SCNu64 " %u %" SCNu64 " %" SCNu64, name, &pieces,
		   &len, &imm, &remote, &rkey, &a, &b) != 8) {
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
	if (wr.opcode == IBV_WR_SEND_WITH_INV)
		wr.invalidate_rkey = imm;
	else
		wr.imm_data = htonl(imm);
	wr.sg_list = sge;
	wr.num_sge = layout(sge, pieces, len);
	if (solicited)
		wr.send_flags |= IBV_SEND_SOLICITED;
	if (wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
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

/* A request that concerns memory of this side alone: how it ends. */
static const char *alone(struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	wr->wr_id = REQUEST;
	wr->send_flags = IBV_SEND_SIGNALED;
	if (ibv_post_send(qp, wr, &bad))
		fail("ibv_post_send");
	return completion(REQUEST, &wc) ? "nothing" : ibv_wc_status_str(wc.status);
}

static void bind_window(FILE *out, uint32_t offset, uint32_t len)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_BIND_MW};
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	const char *status;
	if (!mw)
		fail("ibv_alloc_mw");
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info.mr = mr;
	wr.bind_mw.bind_info.addr = (uintptr_t)buffer + offset;
	wr.bind_mw.bind_info.length = len;
	wr.bind_mw.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	status = alone(&wr);
	fprintf(out, "%s %u\n", status, wr.bind_mw.rkey);
}

static void take_back(FILE *out, uint32_t rkey)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = rkey};
	fprintf(out, "%s\n", alone(&wr));
}

/* Waits for the event that was asked for. */
static const char *event(int milliseconds)
{
	struct pollfd descriptor = {.fd = channel->fd, .events = POLLIN};
	struct ibv_cq *which;
	void *context;
	if (poll(&descriptor, 1, milliseconds) != 1)
		return "none";
	if (ibv_get_cq_event(channel, &which, &context))
		fail("ibv_get_cq_event");
	ibv_ack_cq_events(which, 1);
	return "event";
}

static void command(FILE *out, const char *line)
{
	uint32_t pieces, offset, len, seed, only;
	int milliseconds;
	if (sscanf(line, "post %u %u", &pieces, &len) == 2) {
		struct ibv_sge sge[PIECES];
		struct ibv_recv_wr wr = {.wr_id = RECEIVE, .sg_list = sge}, *bad;
		wr.num_sge = layout(sge, pieces, len);
		if (ibv_post_recv(qp, &wr, &bad))
			fail("ibv_post_recv");
		fprintf(out, "ok\n");
	} else if (sscanf(line, "fill %u %u %u", &pieces, &len, &seed) == 3) {
		visit(0, pieces, len, seed);
		fprintf(out, "ok\n");
	} else if (sscanf(line, "check %u %u %u", &pieces, &len, &seed) == 3) {
		const char *wrong = visit(1, pieces, len, seed);
		fprintf(out, "%s\n", wrong ? wrong : "ok");
	} else if (sscanf(line, "bind %u %u", &offset, &len) == 2) {
		bind_window(out, offset, len);
	} else if (sscanf(line, "revoke %u", &len) == 1) {
		take_back(out, len);
	} else if (sscanf(line, "solicited %u", &solicited) == 1) {
		fprintf(out, "ok\n");
	} else if (sscanf(line, "at %u", &base) == 1) {
		fprintf(out, "ok\n");
	} else if (sscanf(line, "arm %u", &only) == 1) {
		if (ibv_req_notify_cq(cq, (int)only))
			fail("ibv_req_notify_cq");
		fprintf(out, "ok\n");
	} else if (sscanf(line, "event %d", &milliseconds) == 1) {
		fprintf(out, "%s\n", event(milliseconds));
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
				wc.wc_flags & WITH_INV          ? wc.invalidated_rkey
				: wc.wc_flags & IBV_WC_WITH_IMM ? ntohl(wc.imm_data)
								: 0);
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
	/* 1.1 s: the guest is slow, and so may be its machine. */
	attr.timeout = 18;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	attr.sq_psn = psn;
	attr.max_rd_atomic = 4;
	if (ibv_modify_qp(qp, &attr,
			  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		fail("RTS");
}

static void set_up(size_t bytes)
{
	int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		     IBV_ACCESS_REMOTE_ATOMIC;
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *context = devices && *devices ? ibv_open_device(*devices) : NULL;
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 16,
			.max_recv_wr = 64,
			.max_send_sge = PIECES,
			.max_recv_sge = PIECES},
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = (unsigned)rights};
	pd = context ? ibv_alloc_pd(context) : NULL;
	buffer = aligned_alloc(4096, bytes);
	channel = context ? ibv_create_comp_channel(context) : NULL;
	if (!pd || !buffer || !channel)
		fail("device");
	buffer_size = bytes;
	memset(buffer, 0, bytes);
	mr = ibv_reg_mr(pd, buffer, bytes, rights | IBV_ACCESS_MW_BIND);
	cq = ibv_create_cq(context, 128, NULL, channel, 0);
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

	if (argc != 5)
		return 2;
	set_up((size_t)atoi(argv[4]) << 20);
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
