mod order;
mod respond;
